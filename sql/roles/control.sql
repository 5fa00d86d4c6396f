-- The owner of the control store, which holds the runs, the findings over time and the corrections.
do $$ begin
    if not exists (select from pg_roles where rolname = 'reconcile_control') then
        create role reconcile_control login;
    end if;
end $$;
revoke create on schema public from public;
grant usage, create on schema public to reconcile_control;
