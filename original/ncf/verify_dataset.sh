#!/usr/bin/env bash
# Checks the archive of MovieLens by its published MD5 sum: verify_dataset.sh [ml-20m|ml-1m] [RAW_DIR]
set -euo pipefail
case "${1:-ml-20m}" in
ml-1m) sum=c4d9eecfca2ab87c1945afe126590906 ;;
*) sum=cd245b17a1ae2cc31bb14903e1204af3 ;;
esac
echo "$sum  ${2:-/data}/${1:-ml-20m}.zip" | md5sum --check --quiet && echo PASSED
