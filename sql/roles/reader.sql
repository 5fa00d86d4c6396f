-- What `reconcile` may do in a store that it audits: read, and nothing else.
-- Run as the owner of the database's tables, once in each audited database.
do $$ begin
    if not exists (select from pg_roles where rolname = 'reconcile_reader') then
        create role reconcile_reader login;
    end if;
end $$;
alter role reconcile_reader set default_transaction_read_only = on;
grant usage on schema public to reconcile_reader;
grant select on all tables in schema public to reconcile_reader;
alter default privileges in schema public grant select on tables to reconcile_reader;
-- What the consumer library keeps there, if a service runs on it: run this again once its tables are there.
do $$ begin
    if to_regnamespace('reconcile') is not null then
        grant usage on schema reconcile to reconcile_reader;
        grant select on all tables in schema reconcile to reconcile_reader;
        alter default privileges in schema reconcile grant select on tables to reconcile_reader;
    end if;
end $$;
