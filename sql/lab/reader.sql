-- What the auditor may do in a database of the lab: read, and nothing else, also what tests make there later.
-- Other databases get what `reconcile contract grants` prints, and no more.
do $$ begin
    if not exists (select from pg_roles where rolname = 'reconcile_reader') then
        create role reconcile_reader login;
    end if;
end $$;
alter role reconcile_reader set default_transaction_read_only = on;
grant usage on schema public to reconcile_reader;
grant select on all tables in schema public to reconcile_reader;
alter default privileges in schema public grant select on tables to reconcile_reader;
-- What the consumer library keeps there, if its tables are there.
do $$ begin
    if to_regnamespace('reconcile') is not null then
        grant usage on schema reconcile to reconcile_reader;
        grant select on all tables in schema reconcile to reconcile_reader;
        alter default privileges in schema reconcile grant select on tables to reconcile_reader;
    end if;
end $$;
