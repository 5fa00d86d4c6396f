-- The activity feed: one row for each record of the topic, never changed.
create table activity_record (
    row_no bigint generated always as identity primary key,
    record_id uuid not null,
    user_id uuid not null,
    kind text not null,
    happened_at timestamptz not null
);

create index activity_record_id on activity_record (record_id);
