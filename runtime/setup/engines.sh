#!/usr/bin/env bash
# Installs Spark and NVTabular, the other engines of the Criteo preparation, into .venv. `make engines` runs it.
set -euo pipefail

stop() {
  echo "setup: $1; fix that and run make again, or do without Spark and NVTabular: make setup ENGINES=no" >&2
  exit 1
}
pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

# From 26.3 on, pip refuses merlin-dataloader for a URL among its optional dependencies. No other environment uses the pip of .venv.
pip install --quiet 'pip<26.3' || stop "pip 26.3 cannot install NVTabular, and an older pip could not be installed (its message is above)"
echo "setup: installing the packages of requirements/engines.lock into .venv (a minute or two, once)"
# The constraint: installed packages keep their versions.
pip install --quiet --quiet --requirement requirements/engines.lock --constraint requirements/base.lock ||
  stop "pip could not install requirements/engines.lock (its message is above); check the network or the package index, and that Python's headers and a C++ compiler are there, with which NVTabular is built (Debian: apt-get install python3.11-dev g++)"
