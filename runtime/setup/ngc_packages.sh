#!/usr/bin/env bash
# Makes .venv on top of the packages that a container brings, for its TensorFlow and Horovod: ngc_packages.sh PYTHON
#
# Installs each package of requirements/ngc.lock that is not there, without its dependencies (the lock has them), so that nothing
# of the container is replaced or hidden. The Dockerfile runs it.
set -euo pipefail
python=$1
# NVIDIA's containers name a file of versions here, which pip would hold against those of the lock.
export PIP_CONSTRAINT=

stop() {
  echo "setup: $1" >&2
  exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name() { sed -E 's/[=@ ].*//; s/[-_.]+/-/g' | tr '[:upper:]' '[:lower:]'; } # as PEP 503 writes them
versions() { "$1" -m pip --disable-pip-version-check list --format=freeze | grep -v '^\(pip\|setuptools\|wheel\)==' | sort; }

versions "$python" >"$work/there"
name <"$work/there" >"$work/names"
for package in tensorflow horovod numpy; do
  grep -qx "$package" "$work/names" || stop "$python has no $package; this is for NVIDIA's TensorFlow containers, elsewhere use make setup"
done

# Without a pip of its own: that of the container then installs into .venv.
"$python" -m venv --system-site-packages --without-pip .venv
grep '==' requirements/ngc.lock >"$work/lock"
paste <(name <"$work/lock") "$work/lock" | awk 'NR == FNR { there[$1]; next } !($1 in there) { print $2 }' "$work/names" - >"$work/missing"
echo "setup: installing $(grep -c == "$work/missing") packages that the container lacks into .venv"
.venv/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --requirement "$work/missing" ||
  stop "pip could not install the packages of requirements/ngc.lock (its message is above)"
.venv/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e ./distributed-embeddings ||
  stop "pip could not install distributed-embeddings (its message is above)"
versions .venv/bin/python | comm -23 "$work/there" - >"$work/changed"
[ ! -s "$work/changed" ] || stop "packages of the container would be replaced: $(tr '\n' ' ' <"$work/changed")"
touch .venv/run && touch .venv/installed .venv/horovod
