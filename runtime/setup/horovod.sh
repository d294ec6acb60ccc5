#!/usr/bin/env bash
# Installs Horovod into .venv; built from source once, then taken from ~/.cache. Usage: horovod.sh [warn]
#
# `make setup` runs it with `warn`: without Horovod it prints a warning and exits with 0. .venv/horovod is written with
# Horovod only, so that the next `make setup` tries again.
#
# Gloo is always built in, MPI where mpicxx and mpirun are (Debian: libopenmpi-dev openmpi-bin).
# With a TensorFlow for GPUs also NCCL, if nvcc and nccl.h are installed; HOROVOD_GPU_OPERATIONS=NCCL or
# empty decides otherwise, and Horovod's other build variables (HOROVOD_NCCL_HOME, ...) reach it.
set -euo pipefail
requirement=$(grep '^horovod==' requirements/horovod.txt)
version=${requirement#horovod==}
if_missing=${1:-fail}
log=.venv/horovod_build.log
work=$(mktemp -d)
# A path without spaces, which Horovod's build needs.
ln -s "$PWD/.venv" "$work/venv"
python=$work/venv/bin/python

combination=
reason="see the end of $log"
finish() {
  local code=$?
  rm -rf "$work"
  if [ $code = 0 ]; then touch .venv/horovod; exit 0; fi
  {
    echo "setup: Horovod $version could not be installed$combination: $reason"
    echo "setup: training on several processes (horovodrun, mpirun, srun) needs it, everything else works without; fix that and run make again, or leave it out: make setup HOROVOD=no"
  } >&2
  if [ "$if_missing" = warn ]; then exit 0; fi
  exit $code
}
trap finish EXIT
pip() { "$python" -m pip --disable-pip-version-check "$@"; }

transport=gloo
if command -v mpicxx >/dev/null && command -v mpirun >/dev/null; then transport=gloo-mpi; fi
tensorflow=$("$python" 2>"$log" -c '
import sys, sysconfig, tensorflow as tf
device = "cuda" if tf.test.is_built_with_cuda() else "cpu"
platform = sysconfig.get_platform()
print(f"tensorflow-{tf.__version__}-{device}-{sys.implementation.cache_tag}-{platform}")')
if [[ $tensorflow == *-cuda-* ]] && command -v nvcc >/dev/null &&
  "${CXX:-g++}" -I"${HOROVOD_NCCL_HOME:-/usr}/include" -include nccl.h -E -x c++ /dev/null &>/dev/null; then
  export HOROVOD_GPU_OPERATIONS=${HOROVOD_GPU_OPERATIONS-NCCL}
fi
parts="${transport/-/ and }${HOROVOD_GPU_OPERATIONS:+ and $HOROVOD_GPU_OPERATIONS}"
combination=" for $tensorflow with $parts"
patches=$(cd runtime/setup/horovod_patches && cat ./*.patch | sha256sum | cut -c1-8)
# The name lists all dependencies of a built wheel.
name=horovod-$version+stall-$patches-$tensorflow-$transport${HOROVOD_GPU_OPERATIONS:+-$HOROVOD_GPU_OPERATIONS}
cache=${XDG_CACHE_HOME:-${HOME:-$PWD/.venv}/.cache}/recommenders-at-scale
kept=$cache/$name

installed() {
  .venv/bin/python -m pip --disable-pip-version-check install --no-index --no-deps --force-reinstall \
    "$1"/*.whl && .venv/bin/python -c 'import horovod.tensorflow' && put_horovodrun
} >>"$log" 2>&1

# Puts our program in place of Horovod's, after the lines by which pip names the interpreter.
put_horovodrun() {
  local lines
  lines=$(sed '/^# -\*-/,$d' .venv/bin/horovodrun)
  printf '%s\n' "$lines" "$(<runtime/cluster/horovodrun.py)" >.venv/bin/horovodrun
}

if [ -d "$kept" ]; then
  if installed "$kept"; then exit; fi
  echo "setup: $kept cannot be used, building Horovod again"
  rm -rf "$kept"
fi

if ! command -v "${CXX:-g++}" >/dev/null; then
  reason="no C++ compiler (${CXX:-g++}) found; install one (Debian: apt-get install g++)"
  exit 1
fi
echo "setup: building Horovod with $parts (2 to 10 minutes, once; $log)"
(
  # Packages that only the build needs stay out of .venv.
  tools=$work/tools
  pip install --target "$tools" setuptools==80.9.0 wheel==0.45.1 packaging
  if ! command -v cmake; then
    pip install --target "$tools" cmake==3.31.6
    export HOROVOD_CMAKE=$tools/cmake/data/bin/cmake
  fi
  export PYTHONPATH=$tools
  pip download --no-deps --no-build-isolation --no-binary :all: --dest "$work" "$requirement"
  tar -xzf "$work/horovod-$version.tar.gz" -C "$work"
  for file in runtime/setup/horovod_patches/*.patch; do
    if command -v patch; then
      patch --strip=1 --forward --directory="$work/horovod-$version" <"$file"
    else
      git -C "$work/horovod-$version" apply -p1 <"$file"
    fi
  done

  if [ $transport = gloo-mpi ]; then export HOROVOD_WITH_MPI=1; else export HOROVOD_WITHOUT_MPI=1; fi
  export HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
  # For a cmake from 4 on, which refuses Gloo's files; and in place of what the outer make set.
  MAKEFLAGS=-j$(nproc)
  export CMAKE_POLICY_VERSION_MINIMUM=3.5 MAKEFLAGS
  # The version becomes 0.28.1+stall, by which runtime/cluster/launcher.py recognizes missing_ranks.patch.
  export HOROVOD_LOCAL_VERSION=stall
  pip wheel --no-build-isolation --no-deps --no-cache-dir --verbose --wheel-dir "$work/wheel" \
    "$work/horovod-$version"
  # Renamed when complete, so that no other set-up ever sees half of it.
  if ! { mkdir -p "$cache" && cp -r "$work/wheel" "$kept.$$" && mv -T "$kept.$$" "$kept"; }; then
    echo "not kept in $cache: it cannot be written, or another set-up was faster"
    rm -rf "$kept.$$"
  fi
) >>"$log" 2>&1
installed "$work/wheel"
