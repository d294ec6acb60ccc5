# shellcheck shell=bash disable=SC2034
# Spark on the cores, memory (GB) and GPUs of a DGX-2, for run_spark_gpu.sh; the variables may be set from outside, for other machines.
: "${TOTAL_CORES:=80}" "${TOTAL_MEMORY:=800}" "${TOTAL_GPUS:=16}" "${GPU_DISCOVERY_SCRIPT:=$preproc/../runtime/gpu_addresses.sh}"
master="${MASTER:-local-cluster[1,$TOTAL_CORES,$((TOTAL_MEMORY * 1024))]}" # one worker, which starts an executor per GPU
settings=("spark.executor.cores=$((TOTAL_CORES / TOTAL_GPUS))" "spark.executor.memory=$((TOTAL_MEMORY * 512 / TOTAL_GPUS))m"
  "spark.plugins=com.nvidia.spark.SQLPlugin" "spark.jars=$RAPIDS_JAR" "spark.rapids.memory.pinnedPool.size=8G"
  "spark.executor.resource.gpu.amount=1" "spark.task.resource.gpu.amount=$(awk "BEGIN { print $TOTAL_GPUS / $TOTAL_CORES }")"
  "spark.worker.resource.gpu.amount=$TOTAL_GPUS" "spark.worker.resource.gpu.discoveryScript=$GPU_DISCOVERY_SCRIPT")
