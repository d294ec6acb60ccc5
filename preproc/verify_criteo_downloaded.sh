#!/usr/bin/env bash
# Checks that a folder holds the 24 days of the Criteo terabyte log: verify_criteo_downloaded.sh [FOLDER]
#
#   FOLDER   with day_0 to day_23, each plain or as .gz (default /data/dlrm/criteo where it exists, else /data/criteo_orig)
set -euo pipefail

default=/data/criteo_orig
[ ! -d /data/dlrm/criteo ] || default=/data/dlrm/criteo
folder="${1:-$default}"
missing=()
for day in {0..23}; do
  [ -s "$folder/day_$day" ] || [ -s "$folder/day_$day.gz" ] || missing+=("day_$day")
done
if ((${#missing[@]} > 0)); then
  echo "error: $folder: expected the files day_0 to day_23, missing or empty: ${missing[*]}; download them from" \
    "https://ailab.criteo.com/download-criteo-1tb-click-logs-dataset/" >&2
  exit 1
fi
echo "Criteo data verified: day_0 to day_23 in $folder"
