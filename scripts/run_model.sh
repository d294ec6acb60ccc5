#!/usr/bin/env bash
# Runs sim.py on the flags of NVIDIA's script of this name:
#   scripts/run_model.sh --data_path DATA --gpus N --amp 1 --xla 0 --benchmark 1 ...
# --gpus is the number of processes, started by mpiexec, or without it by horovodrun. Flags of
# sim.py that are not listed in usage are passed on.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/run_model.sh [flags]
--data_path DIR             data set; default /data
--gpus N                    processes; default 1
--amp, --xla, --benchmark   0 or 1; default 0
--batch_size N              --global_batch_size of sim.py
Other flags are those of sim.py: --mode, --epochs, --benchmark_steps, --results_dir, --log_filename,
--save_checkpoint_path, --load_checkpoint_path, --prebatch_train_size, ...
TEXT
}

cd "$(dirname "$0")/.."
data_path=/data
gpus=1
arguments=()
while [ $# -gt 0 ]; do
  flag=${1%%=*}
  case $flag in
    --help | -h) usage; exit 0 ;;
    --*) ;;
    *) echo "run_model.sh: expected a flag, got '$1'" >&2; usage >&2; exit 2 ;;
  esac
  if [ "$flag" != "$1" ]; then value=${1#*=}; shift
  elif [ $# -gt 1 ]; then value=$2; shift 2
  else echo "run_model.sh: $1 needs a value" >&2; exit 2
  fi
  case $flag in
    --data_path) data_path=$value ;;
    --gpus) gpus=$value ;;
    --batch_size) arguments+=("--global_batch_size=$value") ;;
    --amp | --xla | --benchmark)
      case $value in
        0) ;;
        1) arguments+=("$flag") ;;
        *) echo "run_model.sh: $flag is 0 or 1, got '$value'" >&2; exit 2 ;;
      esac ;;
    *) arguments+=("$flag=$value") ;;
  esac
done

command=("${PYTHON:-python}" sim.py "--dataset_dir=$data_path" --drop_remainder
  ${arguments[@]+"${arguments[@]}"})
if [ "$gpus" != 1 ]; then
  if command -v mpiexec > /dev/null; then
    command=(mpiexec --allow-run-as-root --bind-to socket -np "$gpus" "${command[@]}")
  else
    command=(horovodrun -np "$gpus" "${command[@]}")
  fi
fi
echo "[INFO] running: ${command[*]}"
exec "${command[@]}"
