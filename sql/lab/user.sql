-- The bounded context that owns UserAccount, UserBalance and UserActivity.
create table user_account (
    id uuid primary key,
    version bigint not null,
    first_name text not null,
    last_name text not null,
    updated_at timestamptz not null,
    deleted_at timestamptz
);

create table email_address (
    user_id uuid not null references user_account,
    position smallint not null, -- 1 is the primary address
    address text not null,
    verified boolean not null,
    primary key (user_id, position)
);

create table phone_number (
    user_id uuid not null references user_account,
    position smallint not null,
    number text not null,
    primary key (user_id, position)
);

create table user_balance (
    user_id uuid primary key,
    version bigint not null,
    balance numeric(14, 2) not null,
    tariff text not null,
    updated_at timestamptz not null
);

create table user_activity (
    id uuid primary key,
    user_id uuid not null,
    kind text not null,
    at timestamptz not null
);

-- Written in the transaction of the change; the relay publishes it and marks it.
create table outbox (
    position bigint generated always as identity primary key,
    topic text not null,
    aggregate_id uuid not null,
    event_id uuid not null,
    event_type text not null,
    correlation_id uuid not null,
    payload text, -- the event as it will be sent; null is a tombstone
    created_at timestamptz not null,
    published_at timestamptz,
    parked_at timestamptz -- the relay gave up on it until somebody looks
);

create index outbox_pending on outbox (position) where published_at is null and parked_at is null;
create index outbox_aggregate on outbox (aggregate_id);
