#!/usr/bin/env bash
# Tells Spark this machine's GPUs (spark.worker.resource.gpu.discoveryScript), which PySpark of the package index has no script for.
set -euo pipefail
gpus=$(nvidia-smi --query-gpu=index --format=csv,noheader)
[ -n "$gpus" ] || {
  echo "error: nvidia-smi lists no GPU" >&2
  exit 1
}
echo "{\"name\": \"gpu\", \"addresses\": [\"${gpus//$'\n'/\", \"}\"]}"
