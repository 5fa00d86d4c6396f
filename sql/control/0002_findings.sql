-- What drifted over time. The values of fields are never kept, only a digest of them.
create table finding (
    link text not null,
    aggregate_id text not null,
    difference text not null,
    cause text not null,
    fields_digest text,
    first_seen_run text not null,
    first_seen_at timestamp with time zone not null,
    last_seen_run text not null,
    last_seen_at timestamp with time zone not null,
    recurrences integer not null,
    state text not null check (state in ('open', 'closed')),
    closed_by_run text,
    closed_at timestamp with time zone,
    repaired_by text,
    returned integer not null,
    returned_run text,
    -- The instant that the newest word on this finding is about: a run that began earlier does not overrule it.
    as_of timestamp with time zone not null,
    primary key (link, aggregate_id)
);

-- What a run changed in the findings of a link.
create table drift (
    link text not null,
    run_id text not null references run (id),
    complete boolean not null,
    opened integer not null,
    returned integer not null,
    closed integer not null,
    still_open integer not null,
    recorded_at timestamp with time zone not null,
    primary key (link, run_id)
);
