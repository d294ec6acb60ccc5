# shellcheck shell=bash disable=SC2034
# What Spark gets of a DGX-2: 96 cores, 1.5 TB of memory, 16 V100 of 32 GB; read by run_spark_gpu.sh. Each may be set from
# outside, for other machines. The RAPIDS settings are those that its documentation names; they were never run here.
: "${TOTAL_CORES:=80}"
: "${TOTAL_MEMORY:=800}" # GB (2^30 bytes)
: "${TOTAL_GPUS:=${NUM_EXECUTORS:-16}}" # an executor has one GPU
: "${NUM_WORKERS:=1}"
check_counts TOTAL_CORES TOTAL_MEMORY TOTAL_GPUS NUM_WORKERS
((TOTAL_CORES >= TOTAL_GPUS)) ||
  stop "TOTAL_CORES is $TOTAL_CORES, too few for an executor on each of $TOTAL_GPUS GPUs; raise TOTAL_CORES or lower TOTAL_GPUS"
((TOTAL_GPUS >= NUM_WORKERS)) ||
  stop "NUM_WORKERS is $NUM_WORKERS, more than the $TOTAL_GPUS GPUs; lower NUM_WORKERS or raise TOTAL_GPUS"

memory_mb=$((TOTAL_MEMORY * 1024))
executors=$TOTAL_GPUS
EXECUTOR_CORES="${NUM_EXECUTOR_CORES:-$((TOTAL_CORES / executors))}"
check_counts EXECUTOR_CORES
driver_mb=$((memory_mb / 8 > 8192 ? 8192 : memory_mb / 8))
# Half of an executor's memory is its heap; the rest is pinned memory, host buffers of the GPU, and Python.
executor_mb=$(((memory_mb - driver_mb) / executors / 2))
overhead_mb=$executor_mb

spark_settings=(
  --jars "$RAPIDS_JAR"
  --conf "spark.plugins=com.nvidia.spark.SQLPlugin"
  --conf "spark.executor.cores=$EXECUTOR_CORES"
  --conf "spark.cores.max=$TOTAL_CORES"
  --conf "spark.executor.resource.gpu.amount=1"
  --conf "spark.task.resource.gpu.amount=$(awk "BEGIN { print 1 / $EXECUTOR_CORES }")" # tasks share it
  --conf "spark.rapids.sql.concurrentGpuTasks=2"
  --conf "spark.rapids.memory.pinnedPool.size=8G"
  --conf "spark.rapids.sql.batchSizeBytes=536870912"
  --conf "spark.sql.files.maxPartitionBytes=536870912"
  --conf "spark.sql.shuffle.partitions=$((TOTAL_CORES * 3))"
)
worker_settings=(
  "-Dspark.worker.resource.gpu.amount=$((TOTAL_GPUS / NUM_WORKERS))"
  "-Dspark.worker.resource.gpu.discoveryScript=${GPU_DISCOVERY_SCRIPT:-}"
)
