# shellcheck shell=bash disable=SC2034
# What Spark gets of this machine's cores and memory; read by run_spark_cpu.sh. Each may be set from outside.
: "${TOTAL_CORES:=$(nproc)}"
# 80 % of the machine's memory, or of the container's limit where that is less, in GB (2^30 bytes).
memory_limits() {
  awk '/^MemTotal:/ { printf "%.0f\n", $2 * 1024 }' /proc/meminfo
  cat /sys/fs/cgroup/memory.max 2>/dev/null || true
}
: "${TOTAL_MEMORY:=$(memory_limits | awk '/^[0-9]+$/ && (!least || $1 < least) { least = $1 } END { print int(least * 0.8 / 1073741824) }')}"
: "${NUM_WORKERS:=1}"                                                                    # worker processes of an own cluster
check_counts TOTAL_CORES TOTAL_MEMORY NUM_WORKERS
EXECUTOR_CORES="${EXECUTOR_CORES:-${NUM_EXECUTOR_CORES:-}}" # NVIDIA's name
if [ -z "$EXECUTOR_CORES" ] && [ -n "${NUM_EXECUTORS:-}" ]; then
  check_counts NUM_EXECUTORS
  EXECUTOR_CORES=$((TOTAL_CORES < NUM_EXECUTORS ? 1 : TOTAL_CORES / NUM_EXECUTORS))
fi
: "${EXECUTOR_CORES:=$((TOTAL_CORES < 5 ? TOTAL_CORES : 5))}"
check_counts EXECUTOR_CORES

memory_mb=$((TOTAL_MEMORY * 1024))
executors="${NUM_EXECUTORS:-$((TOTAL_CORES / EXECUTOR_CORES))}"
driver_mb=$((memory_mb / 8 > 4096 ? 4096 : memory_mb / 8 < 1024 ? 1024 : memory_mb / 8))
# A quarter of an executor's memory stays outside of its heap, for the Python processes that write the files.
executor_mb=$(((memory_mb - driver_mb) / (executors > 0 ? executors : 1) * 3 / 4))
overhead_mb=$((executor_mb / 3))

spark_settings=(
  --conf "spark.executor.cores=$EXECUTOR_CORES"
  --conf "spark.cores.max=$TOTAL_CORES"
  --conf "spark.sql.shuffle.partitions=$((TOTAL_CORES * 3 > 32 ? TOTAL_CORES * 3 : 32))"
)
worker_settings=()
