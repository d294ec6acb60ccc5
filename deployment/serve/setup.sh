#!/usr/bin/env bash
# Makes the serving environment: the packages of requirements/serve.lock, and in its folder `triton` what Triton's server is
# started with. Usage: setup.sh PYTHON [FOLDER]
#
#   triton/tritonserver   the server
#   triton/backends       its backends, with the stub of this Python's version
#   triton/lib            libraries under the names by which programs look for them: of Python, and two that perf_analyzer needs
set -euo pipefail
python=$1
folder=${2:-.venv-serve}
here=$(dirname "$0")

stop() {
  echo "serve-setup: $1" >&2
  exit 1
}

command -v "$python" >/dev/null ||
  stop "no Python found as $python; install it (Debian: apt-get install python3.11 python3.11-venv) or name it: make serve-setup PYTHON=/path/to/python3.11"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ "$version" = 3.11 ] ||
  stop "Python 3.11 is needed (the lock is made for it), $python is $version; install python3.11 (Debian: apt-get install python3.11 python3.11-venv) or name it: make serve-setup PYTHON=/path/to/python3.11"
platform=$("$python" -c 'import sysconfig; print(sysconfig.get_platform())')
[ "$platform" = linux-x86_64 ] || [ "$platform" = linux-aarch64 ] ||
  stop "nvidia-pytriton has wheels for linux-x86_64 and linux-aarch64, this is $platform; serve on another machine, or use python -m deployment.predict, which needs no server"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  stop "this Python cannot make virtual environments; install its venv package (Debian: apt-get install python3.11-venv)"
# The stub, in which models run, is linked with it: where it is missing, loading a model hangs silently.
libpython=$("$python" - <<'PYTHON'
import ctypes, pathlib, sys, sysconfig
name = "libpython%d.%d.so.1.0" % sys.version_info[:2]
for folder in sysconfig.get_config_vars("LIBDIR", "LIBPL"):
    if folder and (pathlib.Path(folder) / name).exists():
        print(pathlib.Path(folder) / name)
        break
else:
    try:
        ctypes.CDLL(name)
        maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
        print(next(line.split(None, 5)[5] for line in maps if name in line))
    except OSError:
        pass
PYTHON
)
[ -n "$libpython" ] ||
  stop "no libpython$version.so.1.0 found, which Triton's Python backend is linked with; install it (Debian: apt-get install libpython$version) or name a Python that has it: make serve-setup PYTHON=/path/to/python3.11"

# An incomplete or outdated environment is created again, so that it has exactly the packages of the lock.
if [ -e "$folder" ] && ! { [ -f "$folder/pyvenv.cfg" ] && [ -d "$folder/triton" ]; }; then
  stop "$folder: expected a serving environment or no folder, got something else, which stays; name another folder"
fi
rm -rf "$folder"
echo "serve-setup: installing the packages of requirements/serve.lock into $folder (a minute or two, once)"
"$python" -m venv "$folder"
mkdir "$folder/triton"  # marks it as ours
if ! "$folder/bin/python" -m pip install --disable-pip-version-check --quiet --quiet --requirement "$here/../../requirements/serve.lock"; then
  stop "pip could not install requirements/serve.lock (its message is above); check the network or the package index and run make serve-setup again"
fi

packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
wheel=$packages/pytriton/tritonserver
libraries=$packages/nvidia_pytriton.libs
stub=$wheel/python_backend_stubs/$version/triton_python_backend_stub
for part in "$wheel/bin/tritonserver" "$wheel/backends/python" "$stub" "$libraries"; do
  [ -e "$part" ] || stop "nvidia-pytriton has no ${part#"$packages"/}: it is of another version than deployment/serve/setup.sh is made for"
done
mkdir "$folder/triton/lib"
cp -r "$wheel/backends" "$folder/triton/backends"
cp "$stub" "$folder/triton/backends/python/"
ln -sr "$wheel/bin/tritonserver" "$folder/triton/tritonserver"
ln -s "$libpython" "$folder/triton/lib/libpython$version.so.1.0"
ln -sr "$libraries"/libb64-*.so.0d "$folder/triton/lib/libb64.so.0d"
ln -sr "$libraries"/libcudart-*.so.12.* "$folder/triton/lib/libcudart.so.12"

# Output of programs that are not started in earnest.
LD_LIBRARY_PATH=$libraries:$(cd "$folder/triton/lib" && pwd)
export LD_LIBRARY_PATH
output=$("$folder/triton/tritonserver" --help 2>&1 || true)
[[ $output == *--exit-timeout-secs* ]] || stop "tritonserver does not start; its output: ${output:-nothing}"
output=$("$folder/triton/backends/python/triton_python_backend_stub" 2>&1 || true)
[[ $output == *"Expected "*" arguments"* ]] || stop "the stub of Triton's Python backend does not start; its output: ${output:-nothing}"
if ! "$folder/bin/perf_analyzer" --version &>/dev/null; then
  echo "serve-setup: perf_analyzer does not start here, python -m deployment.evaluate_latency measures with its own client"
fi
touch "$folder/installed"
