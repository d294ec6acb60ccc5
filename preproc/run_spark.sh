#!/usr/bin/env bash
# Prepares Criteo click logs with Spark: run_spark.sh <CPU|DGX2> INPUT OUTPUT [THRESHOLD [FLAG...]]
#
# CPU starts run_spark_cpu.sh with these arguments, DGX2 run_spark_gpu.sh.
set -euo pipefail

preproc="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
case "${1:-}" in
CPU) runner=run_spark_cpu.sh ;;
DGX2) runner=run_spark_gpu.sh ;;
*)
  echo "error: usage: run_spark.sh <CPU|DGX2> INPUT OUTPUT [THRESHOLD [FLAG...]]" >&2
  exit 2
  ;;
esac
exec "$preproc/$runner" "${@:2}"
