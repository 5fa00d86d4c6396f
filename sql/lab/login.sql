-- Login's copy of UserAccount: one row for each account, updated in place.
create table login_profile (
    user_id uuid primary key,
    version bigint not null,
    display_name text not null,
    mail text not null,
    phone text,
    changed_at timestamptz not null
);

-- One row for each message that was applied, written in the transaction of the change.
create table processed_message (
    partition integer not null,
    "offset" bigint not null,
    event_id uuid not null,
    processed_at timestamptz not null,
    primary key (partition, "offset")
);

create index processed_message_event on processed_message (event_id);

-- Accounts with a stashed message: what follows for them is stashed too.
create table stashed_account (
    user_id uuid primary key,
    since timestamptz not null
);
