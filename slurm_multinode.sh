#!/usr/bin/env bash
# Trains on several machines of a SLURM cluster; docs/multi_node.md says more.
#
#     cmd='numactl --interleave=all -- python -u dlrm.py --dataset_path /data/criteo --amp \
#         --save_checkpoint_path /data/checkpoints --resume auto' \
#     cont=recommenders mounts=/data:/data \
#     sbatch -N 4 --ntasks-per-node=8 -t 04:00:00 slurm_multinode.sh
#
# To be submitted from the folder in which `cmd` is to run. Variables:
#
#   cmd           what every task runs: a line, or several, for bash.
#   cont          container image for pyxis and enroot; without it `cmd` runs on the machines themselves.
#   mounts        SOURCE:TARGET[:FLAGS] of the container, several with commas between them.
#   srun_flags    more flags of srun, quoted as for a shell; they come behind --mpi=pmix
#                 --kill-on-bad-exit=1 (and --cpu-bind=none, where SLURM binds), and the last one counts.
#   max_restarts  a job that was put back into the queue so many times is not put back again: 50.
#
# Tasks are one per GPU, unless sbatch is told --ntasks-per-node or -n. Each is a rank. The exit code
# is the highest one of the ranks; the log is appended to at every start.
#
# 300 seconds before the time limit SLURM sends SIGTERM to the ranks, which save a checkpoint and exit
# with 75; then the job is put back into the queue, and with `--resume auto` in `cmd` it goes on from
# there. So it does when it was preempted; not after scancel, which gives the ranks SLURM's KillWait
# to save. For more time: `sbatch --signal=TERM@900 ...`.
#
#SBATCH --job-name=recommender
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=TERM@300
set -euo pipefail

say() { echo "slurm_multinode.sh: $*" >&2; }
fail() {
  say "error: $*"
  exit 2
}

# What it was given.

# A variable that is not there may be one that was misspelt. With it the other names may mean anything.
expect() {
  local name=$1 wrong
  shift
  [ -z "${!name-}" ] || return 0
  for wrong in "$@"; do
    [ -z "${!wrong-}" ] ||
      fail "there is $wrong, but no $name: the variables are cmd, cont, mounts, srun_flags and max_restarts; if $wrong is of something else, unset it"
  done
}
expect cmd CMD cmds command
expect cont CONT container_image
[ -z "${cont-}" ] || expect mounts MOUNTS MOUNT mount
expect srun_flags SRUN_FLAGS srun_flag srunflags
expect max_restarts MAX_RESTARTS
cmd=${cmd:-} cont=${cont:-} mounts=${mounts:-} srun_flags=${srun_flags:-} max_restarts=${max_restarts:-50}
[ -n "${SLURM_JOB_ID:-}" ] || fail "start it with sbatch: cmd='python dlrm.py ...' sbatch -N 2 ... slurm_multinode.sh"
[[ $cmd =~ [^[:space:]] ]] || fail "the variable cmd is empty; it says what each task runs: cmd='python dlrm.py ...' sbatch ..."
bash -n -c "$cmd" || fail "bash cannot read cmd, see above; cmd is: $cmd"
[[ $max_restarts =~ ^[0-9]+$ ]] || fail "max_restarts is a number, 0 or more, not '$max_restarts'"
(eval "words=($srun_flags)") 2>/dev/null || fail "srun_flags is no list of words for a shell: $srun_flags"
words=()
eval "words=($srun_flags)"

container=()
if [ -n "$cont" ]; then
  [[ $(srun --help) == *--container-image* ]] ||
    fail "cont=$cont, but srun has no --container-image: this cluster has no pyxis; leave cont out"
  if [[ $cont == /* || $cont == ./* ]] && [ ! -e "$cont" ]; then
    fail "cont=$cont: there is no such file"
  fi
  container=(--container-image="$cont")
  [ -z "$mounts" ] || container+=(--container-mounts="$mounts")
elif [ -n "$mounts" ]; then
  fail "mounts=$mounts is of a container, but cont does not say which"
fi

# One task per GPU, if nobody said how many.

tasks=()
if [ -z "${SLURM_NTASKS:-}" ]; then
  gpus=${SLURM_GPUS_ON_NODE:-1}
  if ((${SLURM_CPUS_ON_NODE:-$gpus} < gpus)); then
    fail "$gpus GPUs on a node, but $SLURM_CPUS_ON_NODE cores for their tasks: sbatch --exclusive, or --ntasks-per-node=$gpus -c CORES"
  fi
  tasks=(--ntasks-per-node="$gpus")
elif [[ ${SLURM_TASKS_PER_NODE:-} == *,* ]]; then
  say "note: not all machines have as many tasks ($SLURM_TASKS_PER_NODE); --ntasks-per-node gives each the same number"
fi
# All cores of the job for each task of a machine, which divide them themselves.
binding=()
if [[ $(scontrol show config) == *task/affinity* ]]; then binding=(--cpu-bind=none); fi
# srun does not ask sbatch's --cpus-per-task any more, from SLURM 22.05 on.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# What a task does. SLURM sends SIGTERM to all its processes: bash waits for the training's end, in
# the outer shell and in that of cmd. A rank that fails says so late: --kill-on-bad-exit then ends
# the others, which until then had the time to say whom they miss and to exit with codes of their own.
# shellcheck disable=SC2016
task='
trap : TERM
code=0
bash -c "trap : TERM
$1" || code=$?
if [ $code -gt 128 ] && [ $code != 143 ]; then
  echo "slurm_multinode.sh: rank $SLURM_PROCID on $SLURMD_NODENAME was ended by signal $((code - 128))" >&2
fi
if [ $code != 0 ]; then
  sleep 5 &
  wait $!
fi
exit $code'

# SLURM may end this job by SIGTERM to all of its processes: the ranks' end comes first.
trap : TERM
restarts=${SLURM_RESTART_COUNT:-0}
say "job $SLURM_JOB_ID, restarts: $restarts, machines: ${SLURM_JOB_NODELIST:-this one}"
if ((${SLURM_JOB_END_TIME:-0} > 0 && SLURM_JOB_END_TIME - EPOCHSECONDS <= 360)); then
  say "note: the time limit is $((SLURM_JOB_END_TIME - EPOCHSECONDS)) s away, and SIGTERM comes 300 s before it; sbatch --signal=TERM@60 for a short job"
fi
code=0
exec 3>&1
# Where SLURM cannot launch a task, srun says so on its error output and exits with 0. Where a rank
# fails before others have begun, their 143 is higher than its code, which srun says, too.
complaints=$(
  trap : TERM
  srun --mpi=pmix --kill-on-bad-exit=1 "${binding[@]}" "${tasks[@]}" "${container[@]}" "${words[@]}" \
    bash -c "$task" task "$cmd" 2>&1 >&3 3>&- | {
    trap '' TERM
    exec sed -u -n -e 'w /dev/stderr' -e '/^srun: error: .*\(launch failed\|Exited with exit code\)/p'
  }
) || code=$?
if [ $code = 0 ] && [[ $complaints == *"launch failed"* ]]; then
  say "error: SLURM could not start every rank, see above"
  exit 1
fi

# Go on later?

STOPPED=75 # by a signal, with a checkpoint
TERMINATED=143
if [ $code = $TERMINATED ]; then
  failed=0
  while [[ $complaints =~ "Exited with exit code "([0-9]+) ]]; do
    each=${BASH_REMATCH[1]} complaints=${complaints#*"${BASH_REMATCH[0]}"}
    if [ "$each" != $STOPPED ] && [ "$each" != $TERMINATED ] && ((each > failed)); then failed=$each; fi
  done
  if [ "$failed" != 0 ]; then
    say "a rank failed, see above, and SLURM ended the others"
    exit "$failed"
  fi
fi
if [ $code != $STOPPED ] && [ $code != $TERMINATED ]; then exit $code; fi
if ! shown=$(scontrol --oneliner show job "$SLURM_JOB_ID"); then
  say "SLURM does not answer, see above; submit it again to go on"
elif [[ $shown != *" JobState=RUNNING "* ]]; then
  say "SLURM has ended this job; if it was preempted, SLURM puts it back into the queue itself"
elif [ $code = $TERMINATED ] && [[ $shown == *" PreemptTime=None "* ]]; then
  say "stopped by SIGTERM before the training began: give it more time (sbatch -t), or a later signal (sbatch --signal=TERM@SECONDS before the limit)"
elif ! [[ $cmd =~ (^|[[:space:]])--?resume([[:space:]]+|=)[\"\']?auto([^[:alnum:]_./-]|$) ]]; then
  say "not put back into the queue: it would begin at the beginning; with --resume auto and --save_checkpoint_path in cmd it would go on"
elif ((restarts >= max_restarts)); then
  say "not put back into the queue: it was $restarts times (max_restarts=$max_restarts)"
elif scontrol requeue "$SLURM_JOB_ID"; then
  say "put back into the queue, to go on from the last checkpoint"
else
  say "SLURM does not put it back into the queue, see above; submit it again to go on"
fi
exit $code
