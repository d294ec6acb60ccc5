#!/usr/bin/env bash
# Runs sim.py --drop_remainder: run_model.sh --data_path DATA --gpus N --amp 1 --benchmark 1 ...; other flags are those of sim.py.
set -euo pipefail
gpus=1 flags=(--drop_remainder)
for ((i = 1; i <= $#; i += 2)); do
  flag="${!i/#--data_path/--dataset_dir}" j=$((i + 1))
  if [ "$flag" = --gpus ]; then gpus="${!j}"; else flags+=("${flag/#--batch_size/--global_batch_size}=${!j}"); fi
done
exec horovodrun -np "$gpus" "${PYTHON:-python}" "$(dirname "${BASH_SOURCE[0]}")/../../../sim.py" "${flags[@]}"
