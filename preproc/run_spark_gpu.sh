#!/usr/bin/env bash
# Runs run_spark_cpu.sh on GPUs with the settings of dgx2_config.sh; RAPIDS_JAR is the RAPIDS plugin for Spark. The tests read its command only.
set -euo pipefail
preproc="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
[ -f "${RAPIDS_JAR:-}" ] || { echo "error: RAPIDS_JAR must be the RAPIDS plugin for Spark, got '${RAPIDS_JAR:-}'" >&2 && exit 2; }
# shellcheck source=dgx2_config.sh
source "$preproc/dgx2_config.sh"
exec env -u TOTAL_CORES -u TOTAL_MEMORY "$preproc/run_spark_cpu.sh" "${1:-}" "${2:-}" "${3:-}" "${settings[@]/#/--spark_conf=}" --master "$master" "${@:4}"
