#!/usr/bin/env bash
# Prepares Criteo logs for dlrm.py and dcnv2.py: prepare_dataset.sh <CPU|DGX2> <frequency_threshold> [FLAG of preproc.criteo ...]
set -euo pipefail
case "${1:-} ${2:-}" in
"CPU "?*) runner=run_spark_cpu.sh ;;
"DGX2 "?*) runner=run_spark_gpu.sh ;;
*) echo "error: usage: prepare_dataset.sh <CPU|DGX2> <frequency_threshold> [FLAG...]" >&2 && exit 2 ;;
esac
export INPUT_PATH="${download_dir:-}" OUTPUT_PATH="${final_output_dir:-}" SPARK_LOCAL_DIRS="${SPARK_LOCAL_DIRS:-${spark_output_path:-/data/dlrm/spark/output}}"
exec "$(dirname "${BASH_SOURCE[0]}")/$runner" "" "" "${@:2}"
