#!/bin/sh
# "executor" is what Spark on Kubernetes asks of a container; anything else is run as it is.
set -eu

if [ "${1:-}" != executor ]; then
  exec "$@"
fi

home="${SPARK_HOME:-$(python3 -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')}"
# The archive of Spark's classes, if the image has one: without it Spark starts, too. Java takes it
# if the JARs come first, in the order that Spark gives them; a folder is allowed behind them only.
set -f; IFS='
'
set -- $(env -u SPARK_CONF_DIR python3 -m jetspark.spark.fast_start.class_archive options || true)
set +f; unset IFS
slf4j="$(echo "$home"/jars/slf4j-api-*.jar)"
# Options of the JVM come one by one: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …
number=0
while eval "[ -n \"\${SPARK_JAVA_OPT_$number+set}\" ]"; do
  eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
  number=$((number + 1))
done
exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$slf4j:$home/jars/*${SPARK_CONF_DIR:+:$SPARK_CONF_DIR}" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
