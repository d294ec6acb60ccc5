#!/usr/bin/env bash
# Lists the GPUs of this machine for Spark (spark.worker.resource.gpu.discoveryScript); PySpark of the package index has no such script.
set -euo pipefail
gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader)
[ -n "$gpus" ] || {
  echo "error: nvidia-smi lists no GPU" >&2
  exit 1
}
echo "{\"name\": \"gpu\", \"addresses\": [\"${gpus//$'\n'/\", \"}\"]}"
