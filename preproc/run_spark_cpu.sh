#!/usr/bin/env bash
# Prepares Criteo click logs with Spark: run_spark_cpu.sh [INPUT OUTPUT THRESHOLD [FLAG...]]
#
#   INPUT OUTPUT             or INPUT_PATH, OUTPUT_PATH: the raw logs and the prepared data set; by default the folders of
#                            NVIDIA's recipes, /data/dlrm/criteo and /data/dlrm/binary_dataset, or without the first
#                            /data/criteo_orig and /data/preprocessed
#   THRESHOLD                or FREQUENCY_THRESHOLD (default 15): one for all columns, or 15,5:30 for 30 in column cat_5
#   FREQUENCY_LIMIT          the threshold with fields of a line as columns: 15,14:30 is 30 for cat_0
#   USE_FREQUENCY_LIMIT      0: no threshold; 1: FREQUENCY_LIMIT; any other number: this threshold
#   FLAG...                  more flags of `python -m preproc.criteo`, like --days 0-23
#   MASTER                   a cluster that is there: spark://HOST:PORT, yarn, k8s://URL, local[N]. Unset: a standalone cluster
#                            of a master and NUM_WORKERS workers on this machine, stopped at the end
#   TOTAL_CORES TOTAL_MEMORY cores, and memory in GB, of all that Spark starts (cpu_config.sh)
#   NUM_EXECUTORS, NUM_EXECUTOR_CORES, EXECUTOR_MEMORY, DRIVER_MEMORY   their parts, memory in GB (default: of the totals)
#   SPARK_LOCAL_DIRS         where Spark keeps what does not fit into memory (about the size of the log)
#   PYTHON SPARK_HOME        default: .venv-engines of this project (else .venv), and its PySpark
#   SPARK_SUBMIT             what is called instead of spark-submit
set -euo pipefail

preproc="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
stop() {
  echo "error: $1" >&2
  exit 2
}

input=/data/criteo_orig output=/data/preprocessed
[ ! -d /data/dlrm/criteo ] || input=/data/dlrm/criteo output=/data/dlrm/binary_dataset
input="${1:-${INPUT_PATH:-$input}}"
output="${2:-${OUTPUT_PATH:-$output}}"
threshold=(--frequency_threshold "${3:-${FREQUENCY_THRESHOLD:-15}}")
if [ -z "${3:-}${FREQUENCY_THRESHOLD:-}" ]; then
  case "${USE_FREQUENCY_LIMIT:-1}" in
  0) threshold=(--frequency_threshold 0) ;;
  1) [ -z "${FREQUENCY_LIMIT:-}" ] || threshold=(--frequency_limit "$FREQUENCY_LIMIT") ;;
  *) threshold=(--frequency_threshold "$USE_FREQUENCY_LIMIT") ;;
  esac
fi
shift $(($# < 3 ? $# : 3))

check_counts() { # NAME...: for the profiles, before they calculate
  for name in "$@"; do
    [[ "${!name}" =~ ^[1-9][0-9]*$ ]] ||
      stop "$name is '${!name}'; it must be a whole number, 1 or more, without a unit; set it, like $name=8"
  done
}
# shellcheck source=cpu_config.sh
source "${SPARK_PROFILE:-$preproc/cpu_config.sh}"
for name in EXECUTOR_MEMORY DRIVER_MEMORY; do
  [ -z "${!name:-}" ] || check_counts "$name"
done
[ -z "${DRIVER_MEMORY:-}" ] || driver_mb=$((DRIVER_MEMORY * 1024))
[ -z "${EXECUTOR_MEMORY:-}" ] || executor_mb=$((EXECUTOR_MEMORY * 1024))
spark_settings+=(--conf "spark.executor.memory=${executor_mb}m")
((TOTAL_CORES >= EXECUTOR_CORES * NUM_WORKERS)) ||
  stop "TOTAL_CORES is $TOTAL_CORES, too few for $NUM_WORKERS workers with executors of $EXECUTOR_CORES cores; raise TOTAL_CORES or lower EXECUTOR_CORES or NUM_WORKERS"
((executor_mb >= 512)) ||
  stop "TOTAL_MEMORY is $TOTAL_MEMORY GB, which leaves each of $executors executors $executor_mb MB; raise TOTAL_MEMORY or lower TOTAL_CORES"

if [ -z "${PYTHON:-}" ]; then
  PYTHON="$preproc/../.venv-engines/bin/python"
  [ -x "$PYTHON" ] || PYTHON="$preproc/../.venv/bin/python"
  [ -x "$PYTHON" ] || PYTHON=python3
fi
export PYSPARK_PYTHON="${PYSPARK_PYTHON:-$PYTHON}" PYSPARK_DRIVER_PYTHON="$PYTHON"
if [ -z "${SPARK_HOME:-}" ]; then
  SPARK_HOME="$("$PYTHON" -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))' 2>/dev/null)" ||
    stop "PySpark is not installed for $PYTHON; install it with \`make engines\`, or set SPARK_HOME"
fi
export SPARK_HOME

logs=""
clean_up() {
  local pid
  for pid in $(jobs -p | sort -rn); do # the job's whole group first: Java, and the Python that it starts; then the daemons
    kill -- "-$pid" 2>/dev/null || kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  [ -z "$logs" ] || rm -rf "$logs"
}
trap clean_up EXIT
# A shell handles a signal while it waits for a background process, not during a foreground one.
interrupted() { # STATUS
  echo "interrupted; run it again to resume" >&2
  exit "$1"
}
trap 'interrupted 129' HUP
trap 'interrupted 130' INT
trap 'interrupted 143' TERM

# The address that a daemon writes into its log once it listens.
wait_for() { # LOG PATTERN PID
  for _ in $(seq 600); do
    grep -s -o -m 1 "$2" "$1" && return
    kill -0 "$3" 2>/dev/null || break
    sleep 0.1
  done
  cat "$1" >&2
  stop "a daemon of Spark did not start; its log is above"
}

start_cluster() {
  export SPARK_LOCAL_IP=127.0.0.1
  logs="$(mktemp -d)"
  "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master \
    --host 127.0.0.1 --port 0 --webui-port 0 >"$logs/master" 2>&1 &
  MASTER="$(wait_for "$logs/master" 'spark://127.0.0.1:[0-9]*' $!)"
  for worker in $(seq "$NUM_WORKERS"); do
    SPARK_WORKER_OPTS="${worker_settings[*]-} ${SPARK_WORKER_OPTS:-}" SPARK_WORKER_DIR="$logs/work_$worker" \
      "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker "$MASTER" \
      --host 127.0.0.1 --port 0 --webui-port 0 --cores $((TOTAL_CORES / NUM_WORKERS)) \
      --memory $(((memory_mb - driver_mb) / NUM_WORKERS))m >"$logs/worker_$worker" 2>&1 &
    wait_for "$logs/worker_$worker" 'Successfully registered with master' $! >/dev/null
  done
}

[ -n "${MASTER:-}" ] || start_cluster
case "$MASTER" in
yarn | k8s://*) # which count executors, not cores, and reserve no memory outside of the heap unless requested
  spark_settings+=(--conf "spark.executor.instances=$executors" --conf "spark.executor.memoryOverhead=${overhead_mb}m")
  ;;
esac
set -m # a process group of its own
"${SPARK_SUBMIT:-$SPARK_HOME/bin/spark-submit}" --master "$MASTER" --driver-memory "${driver_mb}m" "${spark_settings[@]}" \
  "$preproc/criteo/spark_job.py" --input "$input" --output "$output" "${threshold[@]}" "$@" </dev/null &
set +m
wait "$!"
