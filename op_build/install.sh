#!/usr/bin/env bash
# Builds the wheels of the TensorFlow ops and installs them into .venv; built once, then taken from ~/.cache. `make op` runs it.
# Usage: install.sh auto|0|1 [STAMP] (the CUDA part where nvcc and a GPU are found, never, or in any case; a file to create when they are installed)
#        install.sh auto|0|1 --objects (only compiles what needs no package, while packages are installed)
#
# Without a C++ compiler and make, the wheel of another machine that is installed in .venv is kept; without one the ops are left out.
set -euo pipefail
shopt -s inherit_errexit
cuda=$1
stamp=${2:-/dev/null}
python=$PWD/.venv/bin/python
ops=(tensorflow-dot-based-interact distributed-embeddings/kernels dataloading/kernels)
cache=${XDG_CACHE_HOME:-${HOME:-$PWD/.venv}/.cache}/recommenders-at-scale

for program in "${CXX:-g++}" make cat cp cut find flock grep ln ls mkdir mv nproc rm sha256sum sort touch uname wc xargs; do
  command -v "${program%% *}" >/dev/null && continue
  if [ "$stamp" = --objects ]; then exit; fi
  if [ "$cuda" = 1 ]; then
    echo "op: no $program found, which CUDA=1 needs; install it (Debian and Ubuntu: apt-get install g++ make)" >&2
    exit 1
  fi
  if "$python" -c 'import importlib.metadata as m; m.version("tensorflow-dot-based-interact")' 2>/dev/null; then
    touch "$stamp"
  else
    echo "op: no $program found, so the fused dot interaction and the fused embedding lookup are not built and TensorFlow's own operations take their" \
      "place: a training step of DLRM takes about 1.15 times as long, one with 20 ids per feature about 3 times. NumPy copies shuffled samples. Install it (Debian and Ubuntu: apt-get install g++ make) and run make op, or install a wheel" \
      "that make op-wheel built on another machine"
  fi
  exit
done
# Not as a part of the make that called: variables come by the environment.
unset MAKEFLAGS MFLAGS MAKELEVEL
build() {
  make --no-print-directory -C op_build -j"$(nproc)" "$@" PYTHON="$python" CUDA="$cuda" TENSORFLOW_SETTINGS="$PWD/op_build/build/tensorflow"
}
# Prints the name of an op's wheels in the cache up to the settings that need TensorFlow.
name() {
  (
    cd "$1"
    {
      cat build/flags ./*.py "$OLDPWD"/op_build/*.py "$OLDPWD"/op_build/*.h
      find . -name build -prune -o -name __pycache__ -prune -o -type f -path '*/*/*' ! -name '_*_ops.*' -print0 | sort -z | xargs -0 sha256sum
    } | sha256sum | cut -c1-16
  ) | { read -r key && echo "$cache/${1//\//-}-$key"; }
}

mkdir -p op_build/build
exec 9>op_build/build/lock
flock 9  # one build at a time
missing=()
if [ "$stamp" = --objects ]; then
  build --silent build/flags
  for op in "${ops[@]}"; do
    compgen -G "$(name "$op")-*" >/dev/null || missing+=("../$op")
  done
  [ ${#missing[@]} = 0 ] || build objects OPS="${missing[*]}"
  exit
fi

"$python" op_build/build_settings.py >op_build/build/tensorflow
build --silent build/flags build/settings
declare -A kept
for op in "${ops[@]}"; do
  kept[$op]=$(name "$op")-$(grep -vE '^(include|library)=' "$op/build/settings" | sha256sum | cut -c1-8)
  [ -d "${kept[$op]}" ] || missing+=("../$op")
done
[ ${#missing[@]} = 0 ] || build wheel OPS="${missing[*]}"
wheels=()
for op in "${ops[@]}"; do
  folder=${kept[$op]}
  if ! [ -d "$folder" ]; then
    mkdir -p "$folder.new.$$"
    cp "$op"/dist/*.whl "$folder.new.$$"
    mv -T "$folder.new.$$" "$folder" 2>/dev/null || rm -rf "$folder.new.$$"
  fi
  rm -rf "$op/dist" && mkdir "$op/dist" && cp "$folder"/*.whl "$op/dist"
  wheels+=("$op"/dist/*.whl)
done
"$python" -m pip --disable-pip-version-check install -qq --no-index --no-deps --force-reinstall "${wheels[@]}"
touch "$stamp"
