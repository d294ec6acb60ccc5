#!/usr/bin/env bash
# Resolves requirements and writes their locks: `make lock`.
#
#   requirements/base.lock    requirements.txt and requirements/dev.txt, for every Python that is supported (environment markers)
#   requirements/run.lock     requirements/run.txt, a part of requirements/base.lock
#   requirements/floor.lock   the same with the versions of requirements/floor.txt, for Python 3.10
#   requirements/docs.lock    requirements/docs.txt, for every Python
#   requirements/engines.lock requirements/engines.txt, for every Python
#   requirements/serve.lock   requirements/serve.txt, for Python 3.11
set -euo pipefail
python=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --disable-pip-version-check --quiet uv==0.9.11

uv_compile() {
  UV_PYTHON_DOWNLOADS=never "$work/venv/bin/uv" pip compile --quiet --no-annotate --no-header "$@"
}

# resolve LOCK PYTHONS ARGUMENT...: the lock's first line names its Pythons, which setup_environment.py reads.
resolve() {
  local lock=$1 pythons=$2
  shift 2
  uv_compile --output-file "$work/lock" --python-version "${pythons%% *}" "$@"
  {
    echo "# Python: $pythons"
    echo "# Every package with its version; made by \`make lock\`."
    grep -v "sys_platform == 'win32'" "$work/lock"
  } >"$work/complete"
  # --universal takes versions that a Python may have by their metadata, also those without a wheel for it.
  local version
  for version in $pythons; do
    uv_compile --no-deps --python-version "$version" --output-file "$work/checked" "$work/complete"
  done
  mv "$work/complete" "$lock"
  rm "$work/lock"
  echo "lock: $(grep -c == "$lock") lines in $lock"
}

# tf-keras depends on the package `tensorflow`, in place of which the environments have tensorflow-cpu. mlperf-logging
# needs pandas only to summarize results; tf-keras would import it in every process, for 0.3 s and 50 MiB.
names=(requirements.txt requirements/dev.txt --no-emit-package tensorflow --no-emit-package pandas --no-emit-package pytz)
resolve requirements/base.lock "3.10 3.11 3.12 3.13" --universal "${names[@]}"
grep -v '^-e ' requirements/base.lock >"$work/base"
resolve requirements/run.lock "3.10 3.11 3.12 3.13" --universal --constraint "$work/base" requirements/run.txt "${names[@]:2}"
resolve requirements/floor.lock "3.10" --override requirements/floor.txt "${names[@]}"
resolve requirements/docs.lock "3.10 3.11 3.12 3.13" --universal requirements/docs.txt
resolve requirements/engines.lock "3.10 3.11 3.12 3.13" --universal requirements/engines.txt
resolve requirements/serve.lock "3.11" requirements/serve.txt
