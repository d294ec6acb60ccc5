#!/usr/bin/env bash
# Checks for the archive of MovieLens and prints where to get a missing one: download_dataset.sh [ml-20m|ml-1m] [RAW_DIR]
set -euo pipefail
name="${1:-ml-20m}" raw="${2:-/data}"
[ ! -f "$raw/$name.zip" ] || exit 0
echo "error: $raw/$name.zip is missing; read https://grouplens.org/datasets/movielens/ and download it:" >&2
echo "  curl --create-dirs -o $raw/$name.zip https://files.grouplens.org/datasets/movielens/$name.zip" >&2
exit 1
