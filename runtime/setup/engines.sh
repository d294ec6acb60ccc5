#!/usr/bin/env bash
# Makes .venv-engines, the environment of Spark and NVTabular, with the Python ENGINES_PYTHON. `make engines` runs it.
set -euo pipefail

stop() {
  echo "setup: $1; fix that and run make again, or do without Spark and NVTabular: make setup ENGINES=no" >&2
  exit 1
}
version_of() { "$1" -c 'import ensurepip, sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }
has_headers() { "$1" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null; }

# NVTabular runs with Python 3.10 and 3.11; another Python, that of .venv for one, gets Spark alone.
for python in ${ENGINES_PYTHON:+"$ENGINES_PYTHON"} python3.11 python3.10 .venv/bin/python python3; do
  version=$(version_of "$python") && break
  [ -z "${ENGINES_PYTHON:-}" ] || stop "ENGINES_PYTHON is '$python', which does not run or has no module venv"
done
missing=
case ${version:-} in
3.10 | 3.11)
  if ! command -v "${CXX:-g++}" >/dev/null || ! has_headers "$python"; then
    missing="NVTabular is built with g++ and Python's headers (Debian: apt-get install g++ python$version-dev), then make -B engines"
  fi
  ;;
3.1[23]) missing="NVTabular needs Python 3.10 or 3.11: make -B engines ENGINES_PYTHON=python3.11" ;;
*) stop "Spark and NVTabular need Python 3.10 to 3.13 with the module venv, found ${version:-none}; install one (Debian: apt-get install python3.11-venv) or name it: ENGINES_PYTHON=/path/to/python" ;;
esac
echo "setup: making .venv-engines with Python $version (a minute or two, once)"
[ -z "$missing" ] || echo "setup: it gets Spark alone; $missing"

rm -rf .venv-engines
"$python" -m venv .venv-engines
lock=.venv-engines/requirements.txt
grep -Ev "^(${missing:+nvtabular==.*})$" requirements/engines.lock >"$lock"
pip() { .venv-engines/bin/python -m pip --disable-pip-version-check "$@"; }
# From 26.3 on, pip refuses merlin-dataloader for a URL among its optional dependencies.
pip install --quiet 'pip<26.3' || stop "pip 26.3 cannot install NVTabular, and an older pip could not be installed (its message is above)"
pip install --quiet --quiet --no-deps --requirement "$lock" ||
  stop "pip could not install requirements/engines.lock (its message is above); check the network or the package index"
touch .venv-engines/installed
