#!/usr/bin/env bash
# Prepares MovieLens for ncf.py: prepare_dataset.sh [ml-20m|ml-1m|NAME] [RAW_DIR] [OUTPUT_DIR]; RAW_DIR has NAME.zip or the folder NAME.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)" name="${1:-ml-20m}" raw="${2:-/data}"
output="${3:-$raw/cache/$name}" python="${PYTHON:-$here/../../.venv/bin/python}"
[ ! -f "$output/feature_spec.yaml" ] || { echo "Using cached preprocessed data" && exit; }
[ -d "$raw/$name" ] || { "$here/download_dataset.sh" "$name" "$raw"; "$python" -m zipfile -e "$raw/$name.zip" "$raw"; }
"$python" "$here/convert.py" --path "$raw/$name" --output "$output"
echo "Dataset $name successfully prepared at: $output"
