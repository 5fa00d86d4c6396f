-- A correction may bring some of the fields that differ and not the others: those are kept by their names.
create table correction_anew (
    id text not null,
    run_id text not null references run (id),
    topic_partition integer not null,
    link text not null,
    aggregate_id text not null,
    basis_version bigint,
    state text not null check (state in (
        'intended', 'emitted', 'unverified', 'converged', 'partial', 'superseded', 'refused', 'dropped'
    )),
    topic_offset bigint,
    reason text,
    differing text, -- the names of the fields that still differ, as a JSON array
    token bigint not null,
    intended_at timestamp with time zone not null,
    changed_at timestamp with time zone not null,
    primary key (run_id, id, topic_partition)
);

insert into correction_anew
select id, run_id, topic_partition, link, aggregate_id, basis_version, state, topic_offset, reason, null, token,
       intended_at, changed_at
  from correction;

drop table correction;

alter table correction_anew rename to correction;

create index correction_by_aggregate on correction (link, aggregate_id);
