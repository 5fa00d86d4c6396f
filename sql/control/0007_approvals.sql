-- Who asked for a run, and by what way; null for runs that began before this was kept.
alter table run add column requested_by text;
alter table run add column requested_way text check (requested_way in ('cli', 'airflow', 'schedule', 'request'));
alter table run add column requested_sudo_user text;

-- The user of the machine who asked; null for a request that came by a record alone.
alter table request add column requested_by text;
alter table request add column requested_sudo_user text;

-- Who said yes to a plan. It is named by the digest of all that it says: a plan that was made anew is another one.
create table approval (
    run_id text not null references run (id),
    plan_digest text not null,
    approver text not null,
    way text not null check (way in ('cli', 'airflow')),
    sudo_user text,
    approved_at timestamp with time zone not null,
    primary key (run_id, plan_digest, approver, way)
);
