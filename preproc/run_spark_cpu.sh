#!/usr/bin/env bash
# Prepares Criteo logs with Spark on this machine: run_spark_cpu.sh [INPUT [OUTPUT [THRESHOLD [FLAG of preproc.criteo ...]]]]
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)" limit="${USE_FREQUENCY_LIMIT:-15}" # 1: the default
flags=(--input "${1:-${INPUT_PATH:-/data/dlrm/criteo}}" --output "${2:-${OUTPUT_PATH:-/data/dlrm/binary_dataset}}")
flags+=(--frequency_threshold "${3:-$((limit == 1 ? 15 : limit))}")
[ -z "${TOTAL_CORES:-}" ] || flags+=(--threads "$TOTAL_CORES")
[ -z "${TOTAL_MEMORY:-}" ] || flags+=(--memory_limit "${TOTAL_MEMORY}GB")
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-$root/.venv/bin/python}" -m preproc.criteo --engine spark "${flags[@]}" "${@:4}"
