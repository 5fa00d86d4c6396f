-- The shop's own table. Its service counts `version` up with each change.
create table orders (
    id bigint primary key,
    version integer not null,
    customer text not null,
    total numeric(12, 2) not null,
    paid boolean not null,
    due date,
    placed_at timestamptz not null,
    notes text
);

-- What Debezium's event router publishes. A row stays for some days; a null payload is a deletion.
create table outbox (
    id uuid primary key default gen_random_uuid(),
    aggregatetype text not null,
    aggregateid text not null,
    type text not null,
    version integer not null,
    payload text,
    created_at timestamptz not null default clock_timestamp(),
    lsn pg_lsn not null default pg_current_wal_insert_lsn()
);
create index on outbox (aggregateid);
create publication outbox for table outbox with (publish = 'insert');
grant select on outbox to connect;
