#!/usr/bin/env bash
# Installs the packages that tests/cluster needs (Debian and Ubuntu, as root); `make cluster-setup`
# runs it. Where it cannot install them, it prints the reason and exits with 0: those tests are
# skipped and name the missing packages.
set -euo pipefail
packages=(
  openmpi-bin libopenmpi-dev
  slurmctld slurmd slurm-client munge libslurm-dev gcc libc6-dev
  iproute2 util-linux openssh-server openssh-client
)
content() {
  echo "cluster-setup: $*; make test-cluster skips what needs it" >&2
  exit 0
}

command -v dpkg-query apt-get >/dev/null || content "nothing is installed, because this is not Debian"
missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) || true
  [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} = 0 ]; then
  echo "cluster-setup: all is there"
  exit
fi
[ "$(id -u)" = 0 ] || content "not root, who could install ${missing[*]}"

# No package may start its daemon on this machine: the tests start their own, in namespaces.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  trap 'rm -f $policy' EXIT
  printf '#!/bin/sh\nexit 101\n' >$policy
  chmod +x $policy
fi
log=$(mktemp)
echo "cluster-setup: installing ${missing[*]}"
if ! {
  apt-get update &&
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "${missing[@]}"
} >"$log" 2>&1; then
  tail -n 3 "$log" >&2
  content "apt-get could not install ${missing[*]} ($log)"
fi
rm "$log"
if [[ " ${missing[*]} " == *" libopenmpi-dev "* && -e .venv/horovod ]]; then
  echo "cluster-setup: Horovod was built without MPI; make -B .venv/horovod builds it anew"
fi
