#!/usr/bin/env bash
# Runs once, when the Postgres container makes its data: the databases, roles and tables of the lab's services.
set -euo pipefail

run() { # run DATABASE [psql's arguments]
  psql -v ON_ERROR_STOP=1 -q -U postgres -d "$1" "${@:2}"
}

role() { # role NAME PASSWORD
  run postgres -v name="$1" -v password="$2" <<< "create role :\"name\" login password :'password'"
}

role reconcile_reader "$READER_PASSWORD"
role reconcile_control "$CONTROL_PASSWORD"
run postgres -c "create database control owner reconcile_control"
run control -f /sql/roles/control.sql

for name in user login billing activity; do
  role "${name}_service" "$SERVICE_PASSWORD"
  run postgres -v name="$name" -v owner="${name}_service" <<< 'create database :"name" owner :"owner"'
  run "$name" -v owner="${name}_service" <<< 'alter schema public owner to :"owner"'
  { echo "set role ${name}_service;"; cat "/sql/lab/$name.sql"; echo "reset role;"; cat /sql/lab/reader.sql; } | run "$name"
done
