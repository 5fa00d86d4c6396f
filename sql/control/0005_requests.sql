-- What was asked for from outside, and which run answered.
create table request (
    id text not null primary key,
    contract text not null,
    ids jsonb not null,
    mode text not null,
    apply boolean not null,
    requested_at timestamp with time zone not null,
    state text not null check (state in ('queued', 'running', 'done')),
    holder text,
    claimed_at timestamp with time zone,
    run_id text,
    finished_at timestamp with time zone
);

create index request_by_state on request (state, requested_at);
