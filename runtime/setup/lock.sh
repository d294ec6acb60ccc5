#!/usr/bin/env bash
# Resolves requirements.txt and requirements/dev.txt in a throw-away environment and writes requirements/base.lock; then
# requirements/engines.txt on top of it, and writes what that adds to requirements/engines.lock; then, in another one,
# requirements/serve.txt.
set -euo pipefail
python=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip() { "$work/venv/bin/python" -m pip --disable-pip-version-check "$@"; }

"$python" -m venv "$work/venv"
pip install --quiet 'pip<26.3' # for the reason in runtime/setup/engines.sh
pip install --quiet --requirement requirements.txt --requirement requirements/dev.txt
pip freeze >"$work/packages"
pip install --quiet --requirement requirements/engines.txt --constraint "$work/packages"
pip freeze | grep -vxFf "$work/packages" >"$work/added"
{
  echo "# Every package of .venv with its version; made by \`make lock\` from requirements.txt and requirements/dev.txt."
  cat "$work/packages"
} >"$work/lock"
{
  echo "# What requirements/engines.txt adds to requirements/base.lock, every package with its version; made by \`make lock\`."
  cat "$work/added"
} >"$work/engines_lock"
"$python" -m venv "$work/serve"
"$work/serve/bin/python" -m pip --disable-pip-version-check install --quiet --requirement requirements/serve.txt
{
  echo "# Every package of .venv-serve with its version; made by \`make lock\` from requirements/serve.txt."
  "$work/serve/bin/python" -m pip --disable-pip-version-check freeze
} >"$work/serve_lock"
mv "$work/lock" requirements/base.lock
mv "$work/engines_lock" requirements/engines.lock
mv "$work/serve_lock" requirements/serve.lock
for lock in requirements/base.lock requirements/engines.lock requirements/serve.lock; do
  echo "lock: $(grep -c == $lock) packages pinned in $lock"
done
