#!/usr/bin/env bash
# Prepares MovieLens for ncf.py: prepare_dataset.sh [ml-20m|ml-1m|NAME] [RAW_DIR] [OUTPUT_DIR]
#
#   ml-20m, ml-1m   RAW_DIR/ml-20m.zip or RAW_DIR/ml-20m/ml-20m.zip, or the unpacked RAW_DIR/ml-20m/ratings.csv
#                   (ml-1m: ratings.dat); download_dataset.sh states where to get the archive
#   NAME            any other log: RAW_DIR/NAME/ratings.csv, in the format of ml-20m
#   RAW_DIR         default /data
#   OUTPUT_DIR      default RAW_DIR/cache/NAME; nothing is done where it is complete
#
# prepare_dataset.sh <CPU|DGX2|local> THRESHOLD [FLAG...] prepares Criteo: it is preproc/prepare_dataset.sh.
set -euo pipefail

project="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
case "${1:-}" in
CPU | DGX2 | local) exec "$project/preproc/prepare_dataset.sh" "$@" ;;
esac
name="${1:-ml-20m}"
raw="${2:-/data}"
output="${3:-$raw/cache/$name}"
python="${PYTHON:-$project/.venv/bin/python}"
[ -x "$python" ] || python="${PYTHON:-python3}"

ratings="$raw/$name/ratings.csv"
[ "$name" != ml-1m ] || ratings="$raw/$name/ratings.dat"
if [ -f "$output/feature_spec.yaml" ]; then
  echo "Using cached preprocessed data"
else
  if [ ! -f "$ratings" ]; then
    archive="$raw/$name.zip"
    [ -f "$archive" ] || archive="$raw/$name/$name.zip"
    case "$name" in
    ml-20m | ml-1m) [ -f "$archive" ] || "$project/download_dataset.sh" "$name" "$raw" ;;
    *)
      echo "error: unsupported data set '$name': expected ml-20m, ml-1m, or a log at $ratings" >&2
      exit 1
      ;;
    esac
    "$python" -m zipfile -e "$archive" "$raw"
  fi
  "$python" "$project/convert.py" --path "$ratings" --output "$output"
fi
echo "Dataset $name successfully prepared at: $output"
echo "You can now run the training with: horovodrun -np <number_of_GPUs> python ncf.py --data $output"
