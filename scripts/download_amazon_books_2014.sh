#!/usr/bin/env bash
# Checks the raw files of Amazon Books 2014 in DIR, by default /data/amazon_books_2014. Downloads
# nothing: prints the address of each missing file, and ends with status 1 then.
#   scripts/download_amazon_books_2014.sh [DIR]
set -euo pipefail

folder=${1:-/data/amazon_books_2014}
source=http://snap.stanford.edu/data/amazon/productGraph/categoryFiles
status=0
for name in meta_Books.json reviews_Books.json; do
  if [ -s "$folder/$name" ]; then
    echo "$folder/$name: $(wc -c < "$folder/$name") bytes"
  elif [ -s "$folder/$name.gz" ]; then
    if ! gzip -t "$folder/$name.gz"; then
      echo "$folder/$name.gz: damaged; download it again from $source/$name.gz" >&2
      status=1
      continue
    fi
    echo "$folder/$name.gz: whole; the preparation reads it as it is"
  else
    echo "$folder/$name: missing; download $source/$name.gz to $folder" >&2
    status=1
  fi
done
if [ $status -eq 0 ]; then
  echo "next: python preprocessing/sim_preprocessing.py --amazon_dataset_path $folder --output_path PARQUET"
fi
exit $status
