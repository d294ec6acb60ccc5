#!/usr/bin/env bash
# Builds the wheels of the TensorFlow ops and installs them into .venv; built once, then taken from ~/.cache. `make op` runs it.
# Usage: install.sh auto|0|1 [STAMP] (the CUDA part where nvcc is found, never, or in any case; a file to create when they are installed)
#
# Without a C++ compiler and make, the wheel of another machine that is installed in .venv is kept; without one the ops are left out.
set -euo pipefail
shopt -s inherit_errexit
cuda=$1
stamp=${2:-/dev/null}
root=$PWD
python=$root/.venv/bin/python

lacks=
for program in "${CXX:-g++}" make; do
  command -v "${program%% *}" >/dev/null || lacks=$program
done
if [ -n "$lacks" ] && [ "$cuda" != 1 ]; then
  if "$python" -c 'import importlib.metadata as m; m.version("tensorflow-dot-based-interact")' 2>/dev/null; then
    touch "$stamp"
  else
    echo "op: no $lacks found, so the fused dot interaction and the fused embedding lookup are not built and TensorFlow's own operations take their" \
      "place: a training step of DLRM takes about 1.15 times as long, one with 20 ids per feature about 3 times. NumPy copies shuffled samples. Install it (Debian and Ubuntu: apt-get install g++ make) and run make op, or install a wheel" \
      "that make op-wheel built on another machine"
  fi
  exit
fi
# Not as a part of the make that called: it gives no jobs, and variables come by the environment.
unset MAKEFLAGS MFLAGS MAKELEVEL

install_op() {
  local here=$1 key kept
  build() { make --no-print-directory -C "$here" "$@" PYTHON="$python" CUDA="$cuda"; }

  mkdir -p "$here/build"
  exec 9>"$here/build/lock"
  flock 9  # one build at a time

  # What the library depends on: settings (without its paths) and sources.
  build --silent build/settings
  key=$(cd "$here" && {
    grep -vE '^(include|library)=' build/settings
    cat ./*.py
    find . -name build -prune -o -name __pycache__ -prune -o -type f -path '*/*/*' ! -name '_*_ops.*' -print0 | sort -z | xargs -0 sha256sum
    uname -m
  } | cat - "$root"/op_build/*.py | sha256sum | cut -c1-24)
  kept=${XDG_CACHE_HOME:-${HOME:-$PWD/.venv}/.cache}/recommenders-at-scale/$(basename "$here")-$key

  if ! [ -d "$kept" ]; then
    build -j2 wheel
    mkdir -p "$kept.new.$$"
    cp "$here"/dist/*.whl "$kept.new.$$"
    mv -T "$kept.new.$$" "$kept" 2>/dev/null || rm -rf "$kept.new.$$"
  fi
  rm -rf "$here/dist" && mkdir "$here/dist" && cp "$kept"/*.whl "$here/dist"
  "$python" -m pip --disable-pip-version-check install -qq --no-index --no-deps --force-reinstall "$here"/dist/*.whl
}

install_op tensorflow-dot-based-interact
install_op distributed-embeddings/kernels
install_op dataloading/kernels
touch "$stamp"
