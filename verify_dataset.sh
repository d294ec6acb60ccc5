#!/usr/bin/env bash
# Checks the archive of MovieLens by its published MD5 sum: verify_dataset.sh [ml-20m|ml-1m] [RAW_DIR]
#
# The archive is in the current folder, RAW_DIR (default /data) or RAW_DIR/NAME. Prints PASSED, or FAILED with status 1.
set -euo pipefail

name="${1:-ml-20m}"
raw="${2:-/data}"
case "$name" in
ml-20m) expected=cd245b17a1ae2cc31bb14903e1204af3 ;;
ml-1m) expected=c4d9eecfca2ab87c1945afe126590906 ;;
*)
  echo "error: unsupported data set '$name': expected ml-20m or ml-1m" >&2
  exit 2
  ;;
esac
for archive in "$name.zip" "$raw/$name.zip" "$raw/$name/$name.zip"; do
  if [ -f "$archive" ]; then
    sum="$(md5sum "$archive" | cut -d' ' -f1)"
    if [ "$sum" = "$expected" ]; then
      echo PASSED
      exit 0
    fi
    echo "FAILED: the MD5 sum of $archive is $sum, expected $expected; download it again"
    exit 1
  fi
done
echo "FAILED: $name.zip is neither here nor in $raw or $raw/$name"
exit 1
