#!/usr/bin/env bash
# The topics of the lab's services, with the partitions that `reconcile lab` gives them.
set -euo pipefail

topic() { # topic PARTITIONS NAME
  /opt/kafka/bin/kafka-topics.sh --bootstrap-server kafka:9092 --create --if-not-exists \
    --partitions "$1" --replication-factor 1 --topic "$2"
}

for name in user-account user-balance user-activity; do
  topic 12 "$name"
done
for name in user-account.login.{retry-1,retry-2,dlq,stash} user-activity.activity.{retry-1,dlq}; do
  topic 3 "$name"
done
