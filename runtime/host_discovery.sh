#!/usr/bin/env bash
# Prints the hosts that can be reached now, as elastic horovodrun asks about once a second:
#
#   horovodrun --min-np 2 --max-np 4 --host-discovery-script "runtime/host_discovery.sh hosts.txt" ...
#
#   host_discovery.sh [--timeout SECONDS] [--port PORT] HOSTS_FILE
#   host_discovery.sh [--timeout SECONDS] [--port PORT] --slurm
#
# HOSTS_FILE has lines HOST:SLOTS, or HOST, which gets horovodrun's --slots; what follows a # is a
# comment. It is read each time: hosts can be added while the job runs. A host has one line. With
# --slurm the hosts are those of the job around, each with as many slots as it has tasks.
#
# A host can be reached if its ssh port (22) accepts a connection within SECONDS (2). All are tried
# at once, and a host whose processors are busy accepts as fast as an idle one: some milliseconds.
# Whether its machine is well is not asked: horovodrun sees that from the exit codes of its ranks.
set -euo pipefail
timeout_s=2 port=22 slurm=no

fail() {
  echo "error: host_discovery.sh: $1" >&2
  exit 2
}

while [[ ${1-} == --* ]]; do
  case $1 in
    --slurm) slurm=yes ;;
    --timeout)
      # 0 would be no limit.
      [[ ${2-} =~ ^[0-9]+(\.[0-9]+)?$ && $2 == *[1-9]* ]] ||
        fail "--timeout needs a number of seconds above 0, not '${2-}'"
      timeout_s=$2
      shift
      ;;
    --port)
      if ! [[ ${2-} =~ ^[1-9][0-9]{0,4}$ ]] || (($2 > 65535)); then
        fail "--port needs a whole number from 1 to 65535, not '${2-}'"
      fi
      port=$2
      shift
      ;;
    *) fail "unknown option $1; there are --timeout, --port and --slurm" ;;
  esac
  shift
done

# One HOST or HOST:SLOTS a line.
if [ $slurm = yes ]; then
  [ $# = 0 ] || fail "--slurm takes no file of hosts, but '$1' came"
  [ -n "${SLURM_JOB_NODELIST-}" ] || fail "--slurm needs a SLURM job; outside, give a file of hosts"
  [ -n "${SLURM_TASKS_PER_NODE-}" ] ||
    fail "--slurm needs SLURM_TASKS_PER_NODE, as sbatch and salloc set it: how many tasks each host has"
  listed=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
  mapfile -t names <<<"$listed"
  # One count for each host, e.g. "2(x3),1".
  counts=()
  for part in ${SLURM_TASKS_PER_NODE//,/ }; do
    times=1
    if [[ $part =~ ^([0-9]+)\(x([0-9]+)\)$ ]]; then part=${BASH_REMATCH[1]} times=${BASH_REMATCH[2]}; fi
    for ((i = 0; i < times; i++)); do counts+=("$part"); done
  done
  [ ${#counts[@]} = ${#names[@]} ] ||
    fail "SLURM_TASKS_PER_NODE=$SLURM_TASKS_PER_NODE is of ${#counts[@]} hosts, but SLURM_JOB_NODELIST=$SLURM_JOB_NODELIST has ${#names[@]}"
  hosts=()
  for i in "${!names[@]}"; do hosts+=("${names[i]}:${counts[i]}"); done
else
  [ $# = 1 ] || fail "one file of hosts is needed (or --slurm), but $# came"
  [ -r "$1" ] || fail "$1: cannot be read"
  declare -A row_of=()
  hosts=() row=0
  while read -r line || [ -n "$line" ]; do
    row=$((row + 1))
    line=${line%%#*}
    line=${line%"${line##*[![:space:]]}"}
    [ -n "$line" ] || continue
    [[ $line =~ ^[A-Za-z0-9._-]+(:[1-9][0-9]*)?$ ]] ||
      fail "$1, line $row: '$line' is not HOST or HOST:SLOTS"
    name=${line%:*}
    [ -z "${row_of[$name]-}" ] ||
      fail "$1, lines ${row_of[$name]} and $row: both are of $name; give it one line, with all its slots"
    row_of[$name]=$row
    hosts+=("$line")
  done <"$1"
  [ ${#hosts[@]} -gt 0 ] || fail "$1: no hosts"
fi

# horovodrun needs no ssh to the machine that it runs on.
is_here() { [[ $1 == localhost || $1 == "$HOSTNAME" || $1 == "${HOSTNAME%%.*}" ]]; }

accepts() {
  # shellcheck disable=SC2016 # for the inner bash
  timeout "$timeout_s" bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$1" "$port" 2>/dev/null
}

for line in "${hosts[@]}"; do
  { if is_here "${line%:*}" || accepts "${line%:*}"; then echo "$line"; fi; } &
done
wait
