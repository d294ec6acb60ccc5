#!/usr/bin/env bash
# Runs preproc/prepare_dataset.sh of the repository's root.
exec "$(dirname "${BASH_SOURCE[0]}")/../../../preproc/prepare_dataset.sh" "$@"
