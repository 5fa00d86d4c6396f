-- The copy that the sink keeps. One column is narrower than the shop's.
create table orders (
    id bigint primary key,
    version integer not null,
    customer varchar(40) not null,
    reference text not null,
    total numeric(12, 2) not null,
    paid boolean not null,
    due date,
    ship_by timestamp,
    placed_at timestamptz not null,
    notes text
);
alter table orders owner to connect;
