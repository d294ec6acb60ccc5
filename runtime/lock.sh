#!/usr/bin/env bash
# Resolves requirements.txt and requirements-dev.txt in a throw-away environment and writes requirements.lock.
set -euo pipefail
python=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --disable-pip-version-check --quiet \
  --requirement requirements.txt --requirement requirements-dev.txt
{
  echo "# Every package of .venv with its version; made by \`make lock\` from requirements.txt and requirements-dev.txt."
  "$work/venv/bin/python" -m pip freeze
} >"$work/lock"
mv "$work/lock" requirements.lock
echo "lock: $(grep -c == requirements.lock) packages pinned in requirements.lock"
