#!/bin/bash
# Starts what a container of our image is for: `driver` or `executor`, as Spark asks Kubernetes, or a command of reconcile.
# Spark says all else by environment variables; their names are those of its own image.
set -eu -o pipefail

spark_home() {
  python -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])'
}

java_options() { # SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ... in their order
  local number=0 name
  while name="SPARK_JAVA_OPT_$number"; [[ -v $name ]]; do
    options+=("${!name}")
    number=$((number + 1))
  done
}

case "${1:-}" in
  driver)
    shift
    exec spark-submit --deploy-mode client \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
      --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
      "$@"
    ;;
  executor)
    shift
    options=()
    java_options
    exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "${options[@]}" \
      "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "${SPARK_CONF_DIR:-}:${SPARK_CLASSPATH:-}:$(spark_home)/jars/*:${HADOOP_CONF_DIR:-}:$PWD" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" \
      --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME" \
      "$@"
    ;;
  *)
    exec reconcile "$@"
    ;;
esac
