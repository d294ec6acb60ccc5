#!/usr/bin/env bash
# Checks that a folder has the 24 days of the Criteo terabyte log, plain or as .gz: verify_criteo_downloaded.sh [FOLDER]
set -euo pipefail
for day in {0..23}; do
  file="${1:-/data/dlrm/criteo}/day_$day"
  [ -s "$file" ] || [ -s "$file.gz" ] || { echo "error: $file is missing or empty" >&2 && missing=1; }
done
exit "${missing:-0}"
