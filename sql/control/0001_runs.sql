-- Which migrations stand, and what each run found. Every file here runs on Postgres and on SQLite alike.
create table schema_migration (
    number integer not null primary key,
    name text not null,
    applied_at timestamp with time zone not null
);

create table run (
    id text not null primary key,
    contract text not null,
    contract_digest text not null,
    started_at timestamp with time zone not null,
    ended_at timestamp with time zone,
    stage text,
    complete boolean,
    exit_code integer,
    links jsonb not null
);

create index run_by_contract on run (contract, started_at);
