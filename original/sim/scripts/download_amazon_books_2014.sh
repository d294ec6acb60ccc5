#!/usr/bin/env bash
# Checks the raw files of Amazon Books 2014 and prints where to get missing ones: download_amazon_books_2014.sh [DIR]
set -euo pipefail
for name in meta_Books.json reviews_Books.json; do
  file="${1:-/data/amazon_books_2014}/$name"
  if [ -s "$file" ] || gzip -t "$file.gz" 2>/dev/null; then echo "$file: found" && continue; fi
  echo "$file: missing; download http://snap.stanford.edu/data/amazon/productGraph/categoryFiles/$name.gz" >&2 && status=1
done
exit "${status:-0}"
