-- The copy that the service keeps. One column is narrower than the shop's.
create table orders (
    id bigint primary key,
    version integer not null,
    customer varchar(40) not null,
    total numeric(12, 2) not null,
    paid boolean not null,
    due date,
    placed_at timestamptz not null,
    notes text
);
alter table orders owner to service;
do $$ begin
    execute format('grant create on database %I to service', current_database());
end $$;
