#!/usr/bin/env bash
# Prepares the Criteo logs for dlrm.py and dcnv2.py: prepare_dataset.sh <CPU|DGX2|local> <frequency_threshold> [FLAG...]
#
#   CPU, DGX2                Spark, as run_spark_cpu.sh and run_spark_gpu.sh start it; their variables count here, too
#   local                    DuckDB on this machine, as `python -m preproc.criteo` does
#   frequency_threshold      one for all columns, or others behind it: 15,5:30 is 30 for cat_5
#   FLAG...                  more flags of `python -m preproc.criteo`, like --days 0-23
#
#   download_dir             the raw logs day_0, day_1, ... (default /data/criteo_orig)
#   final_output_dir         the prepared data set; where it is complete, nothing is done (default /data/preprocessed)
#   spark_output_path        what does not fit into memory, while the preparation runs (default /data/spark/output)
#   conversion_intermediate_dir   not needed: the files are written straight to where they belong
set -euo pipefail

preproc="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
stop() {
  echo "error: $1" >&2
  exit 2
}

(($# >= 2)) || stop "usage: prepare_dataset.sh <CPU|DGX2|local> <frequency_threshold> [FLAG...]"
platform="$1"
threshold="$2"
shift 2
case "$platform" in
CPU | DGX2 | local) ;;
*) stop "the platform is '$platform'; it must be CPU, DGX2 or local" ;;
esac
[[ "$threshold" =~ ^[0-9]+(,[0-9]+:[0-9]+)*$ ]] ||
  stop "the frequency threshold is '$threshold'; write one number, like 15, and others behind it, like 15,5:30 (30 for cat_5)"

download_dir="${download_dir:-/data/criteo_orig}"
final_output_dir="${final_output_dir:-/data/preprocessed}"
spark_output_path="${spark_output_path:-/data/spark/output}"
if [ -n "${conversion_intermediate_dir:-}" ]; then
  echo "conversion_intermediate_dir is not needed: no intermediate copy of the data set is made" >&2
fi
if [ -f "$final_output_dir/feature_spec.yaml" ]; then
  echo "$final_output_dir is complete already; to prepare it anew, move it away or choose another final_output_dir"
  exit 0
fi

mkdir -p "$spark_output_path" "$(dirname "$final_output_dir")"
case "$platform" in
local)
  if [ -z "${PYTHON:-}" ]; then
    PYTHON="$preproc/../.venv/bin/python"
    [ -x "$PYTHON" ] || PYTHON=python3
  fi
  # Found from the caller's folder, to which relative paths refer.
  PYTHONPATH="$preproc/..${PYTHONPATH:+:$PYTHONPATH}" exec "$PYTHON" -m preproc.criteo --input "$download_dir" \
    --output "$final_output_dir" --frequency_threshold "$threshold" --temp_dir "$spark_output_path" "$@"
  ;;
CPU) runner=run_spark_cpu.sh ;;
DGX2) runner=run_spark_gpu.sh ;;
esac
export SPARK_LOCAL_DIRS="${SPARK_LOCAL_DIRS:-$spark_output_path}"
exec "$preproc/$runner" "$download_dir" "$final_output_dir" "$threshold" "$@"
