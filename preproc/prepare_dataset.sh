#!/usr/bin/env bash
# Prepares the Criteo logs for dlrm.py and dcnv2.py: prepare_dataset.sh <CPU|DGX2|local> <frequency_threshold> [FLAG...]
#
#   CPU, DGX2                Spark, as run_spark_cpu.sh and run_spark_gpu.sh start it; their variables count here, too
#   local                    DuckDB on this machine, as `python -m preproc.criteo` does
#   frequency_threshold      one for all columns, with others after it for single columns: 15,5:30 is 30 for cat_5
#   FLAG...                  more flags of `python -m preproc.criteo`, like --days 0-23
#
#   download_dir             the raw logs day_0, day_1, ... (default /data/dlrm/criteo where it exists, else /data/criteo_orig)
#   final_output_dir         the prepared data set (default /data/preprocessed, and /data/dlrm/binary_dataset for logs in
#                            /data/dlrm/criteo). Where it is complete with the same threshold, nothing is done; FLAG --overwrite
#                            replaces it
#   spark_output_path        what does not fit into memory, while the preparation runs (default /data/spark/output, and
#                            /data/dlrm/spark/output for logs in /data/dlrm/criteo)
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
  stop "the frequency threshold is '$threshold'; write one number, like 15, and others after it, like 15,5:30 (30 for cat_5)"

# The folders of NVIDIA's recipe of 2022, and those of 2023.
if [ -z "${download_dir:-}" ] && [ -d /data/dlrm/criteo ]; then
  download_dir=/data/dlrm/criteo
  final_output_dir="${final_output_dir:-/data/dlrm/binary_dataset}"
  spark_output_path="${spark_output_path:-/data/dlrm/spark/output}"
fi
download_dir="${download_dir:-/data/criteo_orig}"
final_output_dir="${final_output_dir:-/data/preprocessed}"
spark_output_path="${spark_output_path:-/data/spark/output}"
if [ -n "${conversion_intermediate_dir:-}" ]; then
  echo "conversion_intermediate_dir is not needed: no intermediate copy of the data set is made" >&2
fi
# Of DuckDB; Spark has an environment of its own.
python="${PYTHON:-$preproc/../.venv/bin/python}"
[ -x "$python" ] || python="${PYTHON:-python3}"
# Found from the caller's folder, to which relative paths refer.
from_project() { PYTHONPATH="$preproc/..${PYTHONPATH:+:$PYTHONPATH}" exec "$python" "$@"; }

# Prints the settings of a complete data set; fails if its threshold differs.
describe() { # DATA_SET THRESHOLD
  from_project - "$@" <<'END'
import sys
from pathlib import Path

from dataloading.spec.feature_spec import FeatureSpec
from preproc.criteo.options import parse_thresholds

folder, threshold = sys.argv[1:]
try:
    general, columns = parse_thresholds(threshold)
    metadata = FeatureSpec.from_yaml(Path(folder, "feature_spec.yaml")).metadata
except ValueError as error:
    sys.exit(f"error: {error}")
shown = {name: metadata.get(name) for name in ("frequency_threshold", "column_thresholds", "days", "rows")}
print(f"{folder} is complete already: {shown}")
if (general, {f"cat_{n}": t for n, t in columns} or None) != tuple(shown.values())[:2]:
    sys.exit(
        f"error: its frequency threshold is not {threshold}; to prepare it again, add --overwrite, move it away or choose "
        "another final_output_dir"
    )
END
}
if [ -f "$final_output_dir/feature_spec.yaml" ] && [[ " $* " != *" --overwrite "* ]]; then
  (describe "$final_output_dir" "$threshold") || exit 2
  (($# == 0)) || echo "nothing was done, and its other settings were not compared with $*; --overwrite prepares it again" >&2
  exit 0
fi

if [ "$platform" != local ] && [ -z "${SPARK_LOCAL_DIRS:-}" ] && [[ "$spark_output_path" == *,* ]]; then
  stop "spark_output_path is '$spark_output_path', where Spark would read several folders; choose one without a comma"
fi
mkdir -p "$spark_output_path" "$(dirname "$final_output_dir")"
case "$platform" in
local)
  from_project -m preproc.criteo --input "$download_dir" --output "$final_output_dir" --frequency_threshold "$threshold" \
    --temp_dir "$spark_output_path" "$@"
  ;;
CPU) runner=run_spark_cpu.sh ;;
DGX2) runner=run_spark_gpu.sh ;;
esac
export SPARK_LOCAL_DIRS="${SPARK_LOCAL_DIRS:-$spark_output_path}"
exec "$preproc/$runner" "$download_dir" "$final_output_dir" "$threshold" "$@"
