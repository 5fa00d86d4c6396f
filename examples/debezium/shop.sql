-- The shop's own table. Its application counts `version` up with each change.
create table orders (
    id bigint primary key,
    version integer not null,
    customer text not null,
    reference text not null,
    total numeric(12, 2) not null,
    paid boolean not null,
    due date,
    ship_by timestamp,
    placed_at timestamptz not null,
    notes text
);
create publication orders for table orders;
grant select on orders to connect;
