-- What is to be emitted, written down before it is, and what became of it: one row per record of a correction.
create table correction (
    id text not null,
    run_id text not null references run (id),
    topic_partition integer not null,
    link text not null,
    aggregate_id text not null,
    basis_version bigint,
    state text not null check (state in (
        'intended', 'emitted', 'unverified', 'converged', 'superseded', 'refused', 'dropped'
    )),
    topic_offset bigint,
    reason text,
    token bigint not null,
    intended_at timestamp with time zone not null,
    changed_at timestamp with time zone not null,
    primary key (run_id, id, topic_partition)
);

create index correction_by_aggregate on correction (link, aggregate_id);
