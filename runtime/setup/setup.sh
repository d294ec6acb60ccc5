#!/usr/bin/env bash
# Makes .venv from requirements/base.lock. Usage: setup.sh PYTHON [TENSORFLOW_REQUIREMENT]
set -euo pipefail
python=$1
tensorflow=${2:-}

stop() {
  echo "setup: $1" >&2
  exit 1
}

command -v "$python" >/dev/null ||
  stop "no python3.11 found; install it (Debian: apt-get install python3.11 python3.11-venv) or name it: make PYTHON=/path/to/python3.11"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ "$version" = 3.11 ] ||
  stop "Python 3.11 is needed (TensorFlow 2.15 and the lock are made for it), $python is $version; install python3.11 (Debian: apt-get install python3.11 python3.11-venv) or name it: make PYTHON=/path/to/python3.11"
command -v "${CXX:-g++}" >/dev/null ||
  stop "no C++ compiler (${CXX:-g++}) found, the toolkit's native parts are built with it; install one (Debian: apt-get install g++)"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  stop "this Python cannot make virtual environments; install its venv package (Debian: apt-get install python3.11-venv)"

# Checks that the versions of the lock are there, without pip, which takes seconds.
readonly CHECK='
import importlib.metadata, sys
lines = (line.strip() for line in open("requirements/base.lock"))
for name, _, version in (line.partition("==") for line in lines if line and line[0] != "#"):
    if importlib.metadata.version(name) != version:
        sys.exit(f"{name}=={version}")
'
# An environment that several clones share is never deleted or changed.
if [ -L .venv ]; then
  where=".venv is a link to $(readlink .venv)"
  .venv/bin/python -c "$CHECK" >/dev/null 2>&1 ||
    stop "$where, which lacks packages of requirements/base.lock; bring it up to date where it is, or remove the link and run make again"
  echo "setup: $where, used unchanged"
  touch .venv/installed
  exit
fi

# Prints a line for every 20 packages and each large file of what pip prints.
show_progress() {
  local line count=0
  while read -r line; do
    case $line in
    Collecting*)
      count=$((count + 1))
      [ $((count % 20)) != 0 ] || echo "setup: $count of $1 packages"
      ;;
    Downloading*[0-9][0-9].[0-9]" MB)"*) echo "setup: downloading ${line#Downloading }" ;;
    "Installing collected packages"*) echo "setup: unpacking $1 packages" ;;
    esac
  done
}

# An incomplete or outdated environment is replaced: it then has exactly the packages of the lock.
rm -rf .venv
echo "setup: installing the packages of requirements/base.lock into .venv (a minute or more, once)"
"$python" -m venv .venv
lock=.venv/requirements.txt
if [ -n "$tensorflow" ]; then
  { grep -v '^tensorflow-cpu==' requirements/base.lock; echo "$tensorflow"; } >"$lock"
else
  cp requirements/base.lock "$lock"
fi
if ! .venv/bin/python -m pip install --disable-pip-version-check --progress-bar off --requirement "$lock" |
  show_progress "$(grep -c == "$lock")"; then
  stop "pip could not install requirements/base.lock (its message is above); check the network or the package index and run make again"
fi
touch .venv/installed
