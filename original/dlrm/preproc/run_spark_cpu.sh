#!/usr/bin/env bash
# Runs preproc/run_spark_cpu.sh of the repository's root.
exec "$(dirname "${BASH_SOURCE[0]}")/../../../preproc/run_spark_cpu.sh" "$@"
