#!/usr/bin/env bash
# States where to get MovieLens and whether it is there: download_dataset.sh [ml-20m|ml-1m] [RAW_DIR]
#
# Nothing is downloaded: the licence of the data asks each user to read it first. Fails where the archive is missing.
set -euo pipefail

name="${1:-ml-20m}"
raw="${2:-/data}"
case "$name" in
ml-20m | ml-1m) ;;
*)
  echo "error: unsupported data set '$name': expected ml-20m or ml-1m" >&2
  exit 1
  ;;
esac
for archive in "$raw/$name.zip" "$raw/$name/$name.zip"; do
  if [ -f "$archive" ]; then
    echo "$archive is there; check it with verify_dataset.sh $name $raw"
    exit 0
  fi
done
echo "error: $raw/$name.zip is not there. Read https://grouplens.org/datasets/movielens/ and download it:" >&2
echo "  curl --create-dirs -o $raw/$name.zip https://files.grouplens.org/datasets/movielens/$name.zip" >&2
exit 1
