#!/usr/bin/env bash
# Trains on several machines of a SLURM cluster; see docs/how_to/slurm.md.
#
#     cmd='numactl --interleave=all -- python -u dlrm.py --dataset_path /data/criteo --amp \
#         --save_checkpoint_path /data/checkpoints --resume auto' \
#     cont="$PWD/recommenders+gpu.sqsh" mounts=/data:/data \
#     sbatch -N 4 --ntasks-per-node=8 -t 04:00:00 slurm_multinode.sh
#
# Submit it from the folder in which `cmd` runs. Variables:
#
#   cmd           command of every task: one or several lines of bash. One training: PMIx starts MPI once
#                 per job; the next training is another job (sbatch --dependency=afterok:JOB).
#   cont          container image for pyxis and enroot, a file's path or a registry's name; without it
#                 `cmd` runs directly on the machines.
#   mounts        SOURCE:TARGET[:FLAGS] of the container, separated by commas; spaces are
#                 not escaped.
#   srun_flags    more flags of srun, quoted as for a shell; they follow --mpi=pmix
#                 --kill-on-bad-exit=1 (and --cpu-bind=none, if SLURM binds), and the last one counts.
#   max_restarts  limit for requeueing the job: 50.
#
# One task per GPU, unless sbatch has --ntasks-per-node or -n. Each is a rank. The exit code
# is the highest one of the ranks; the log is appended to at every start.
#
# 300 seconds before the time limit SLURM sends SIGTERM to the ranks, which save a checkpoint and exit
# with 75; then the job is requeued, and with `--resume auto` in `cmd` it resumes from there. The same
# after a preemption, but not after scancel, which gives the ranks SLURM's KillWait
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

cmd=${cmd:-} cont=${cont:-} mounts=${mounts:-} srun_flags=${srun_flags:-} max_restarts=${max_restarts:-50}
# `--xla\` before a line with `--embedding_dim`, as NVIDIA's example has it, are two words.
cmd=${cmd//\\$'\n'--/ --}
[ -n "${SLURM_JOB_ID:-}" ] || fail "start it with sbatch: cmd='python dlrm.py ...' sbatch -N 2 ... slurm_multinode.sh"
[[ $cmd =~ [^[:space:]] ]] || fail "the variable cmd is empty; it is the command of each task: cmd='python dlrm.py ...' sbatch ... (with --export=NONE it does not arrive)"
bash -n -c "$cmd" || fail "bash cannot read cmd, see above; cmd is: $cmd"
[[ $max_restarts =~ ^[0-9]+$ ]] || fail "max_restarts is a number, 0 or more, not '$max_restarts'"
(eval "words=($srun_flags)") 2>/dev/null || fail "srun_flags is not a list of shell words: $srun_flags"
words=()
eval "words=($srun_flags)"

container=()
if [ -n "$cont" ]; then
  [[ $(srun --help) == *--container-image* ]] ||
    fail "cont=$cont, but srun has no --container-image: this cluster has no pyxis; leave cont out"
  [[ $cont != [./]* ]] || [ -e "$cont" ] || fail "cont=$cont: the file does not exist"
  container=(--container-image="$cont")
  # enroot reads them from lines of fstab, where a space ends a path.
  [ -z "$mounts" ] || container+=(--container-mounts="${mounts// /\\040}")
elif [ -n "$mounts" ]; then
  fail "mounts=$mounts is of a container, but cont is not set"
fi

# In an array one task has the number of the whole array, which then means all of its tasks.
job=$SLURM_JOB_ID
[ "${SLURM_ARRAY_JOB_ID:-}" != "$job" ] || job+=_$SLURM_ARRAY_TASK_ID

# One task per GPU, unless the number of tasks is set.

# Number of GPUs of each machine, or of each set of machines with the same GPUs.
gpus_of_machines() {
  local word count
  for word in $(scontrol --oneliner --details show job "$job"); do
    [[ $word == GRES=* ]] || continue
    count=0
    while [[ $word =~ gpu:([^,:\(]*:)?([0-9]+) ]]; do # gpu:2(IDX:0-1),gpu:a100:1(IDX:2)
      count=$((count + BASH_REMATCH[2])) word=${word#*"${BASH_REMATCH[0]}"}
    done
    echo "$count"
  done
}

tasks=() per_node=${SLURM_TASKS_PER_NODE:-}
if [ -z "${SLURM_NTASKS:-}" ]; then
  gpus=${SLURM_GPUS_ON_NODE:-1} cores_each=${SLURM_CPUS_PER_TASK:-1}
  if ((${SLURM_CPUS_ON_NODE:-gpus * cores_each} < gpus * cores_each)); then
    fail "$gpus GPUs on a node, but $SLURM_CPUS_ON_NODE cores for their tasks, of $cores_each each: sbatch --exclusive, or --ntasks-per-node=$gpus -c CORES"
  fi
  if [ -n "${SLURM_GPUS_ON_NODE:-}" ] && [ "$(gpus_of_machines | sort -u | wc -l)" -gt 1 ]; then
    fail "not all machines have as many GPUs ($(gpus_of_machines | paste -s -d ,)): sbatch --gpus-per-node=GPUS gives each the same number"
  fi
  # A total is that of the ranks, too, even where the job has more by --exclusive.
  if [[ ${SLURM_GPUS:-} =~ ^([^,]*:)?([0-9]+)$ ]] && ((BASH_REMATCH[2] != gpus * ${SLURM_JOB_NUM_NODES:-1})); then
    fail "SLURM_GPUS=$SLURM_GPUS (--gpus, or that of a job within which sbatch was called) is not $gpus for each of ${SLURM_JOB_NUM_NODES:-1} machines: sbatch --gpus-per-node=GPUS gives each the same number"
  fi
  tasks=(--ntasks-per-node="$gpus")
elif [ -n "$per_node" ]; then
  # sbatch passes on the SLURM_NTASKS of a job within which it is called, unless another number is
  # set. 4(x2),1 is 4 * 2 + 1.
  sum=${per_node//(x/*} sum=${sum//)/} sum=${sum//,/+}
  if ((sum != SLURM_NTASKS)); then
    fail "SLURM_NTASKS=$SLURM_NTASKS does not fit SLURM_TASKS_PER_NODE=$per_node: this was submitted from within another job: unset SLURM_NTASKS SLURM_NPROCS before sbatch, or give it --ntasks-per-node"
  fi
fi
# All cores of the job for each task of a machine, which divide them themselves.
binding=()
if [[ $(scontrol show config) == *task/affinity* ]]; then binding=(--cpu-bind=none); fi
# From SLURM 22.05 on srun ignores sbatch's --cpus-per-task.
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# The command of a task. SLURM sends SIGTERM to all its processes: bash waits for the training's end, in
# the outer shell and in that of cmd. A rank that fails ends late: --kill-on-bad-exit then ends
# the others, which have had time to name the missing rank and to exit with their own codes.
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

# SLURM may send SIGTERM to all processes of this job: the ranks must end first.
trap : TERM
restarts=${SLURM_RESTART_COUNT:-0}
say "job $job, restarts: $restarts, machines: ${SLURM_JOB_NODELIST:-this one}"
code=0
exec 3>&1
# If SLURM cannot launch a task, srun reports it on stderr and exits with 0. If a rank fails before
# others have started, their 143 is higher than its code, which srun reports, too.
complaints=$(
  trap '' TERM # for sed, from its start; srun handles it again
  { trap : TERM; srun --mpi=pmix --kill-on-bad-exit=1 "${binding[@]}" "${tasks[@]}" "${container[@]}" "${words[@]}" \
    bash -c "$task" task "$cmd" 2>&1 >&3 3>&-; } |
    sed -u -n -e 'w /dev/stderr' -e '/^srun: error: .*\(launch failed\|Exited with exit code\|Out Of Memory\)/p'
) || code=$?
if [ $code = 0 ] && [[ $complaints == *"launch failed"* ]]; then
  say "error: SLURM could not start every rank, see above"
  exit 1
fi

# Requeue?

STOPPED=75 # by a signal, with a checkpoint
TERMINATED=143
KILLED=137
# The highest code of a failure; and whether a rank was stopped.
failed=0 stopped=no rest=$complaints
while [[ $rest =~ "Exited with exit code "([0-9]+) ]]; do
  each=${BASH_REMATCH[1]} rest=${rest#*"${BASH_REMATCH[0]}"}
  if [ "$each" = $STOPPED ]; then
    stopped=yes
  elif [ "$each" != $TERMINATED ] && ((each > failed)); then
    failed=$each
  fi
done
if [ $code = $TERMINATED ] && [ "$failed" != 0 ]; then
  say "a rank failed, see above, and SLURM ended the others"
  exit "$failed"
fi
# KillWait after the first task's end SLURM kills those that are left. A rank ends with 75 when all
# have saved: nothing is lost. Where something else killed a rank, its shell lives to end with 137.
if [ $code = $KILLED ] && [ $stopped = yes ] && [ "$failed" = 0 ] && [[ $complaints != *"Out Of Memory"* ]]; then
  say "SLURM killed ranks that took long to end, when the checkpoint was saved"
  code=$STOPPED
fi
if [ $code != $STOPPED ] && [ $code != $TERMINATED ]; then exit $code; fi
if ! shown=$(scontrol --oneliner show job "$job"); then
  say "SLURM does not answer, see above; submit it again to resume"
elif [[ $shown != *" JobState=RUNNING "* ]]; then
  say "SLURM has ended this job; if it was preempted, SLURM puts it back into the queue itself"
elif [ $code = $TERMINATED ] && [[ $shown == *" PreemptTime=None "* ]]; then
  say "stopped by SIGTERM before the training began: give it more time (sbatch -t), or a later signal (sbatch --signal=TERM@SECONDS before the limit)"
elif ! [[ $cmd =~ (^|[[:space:]])--?resume([[:space:]]+|=)[\"\']?auto([^[:alnum:]_./-]|$) ]]; then
  say "not put back into the queue: it would begin at the beginning; with --resume auto and --save_checkpoint_path in cmd it would resume"
elif ((restarts >= max_restarts)); then
  say "not put back into the queue: it was $restarts times (max_restarts=$max_restarts)"
elif (trap '' TERM && exec scontrol requeue "$job"); then # SLURM ends this job before scontrol has its answer
  say "put back into the queue, to resume from the last checkpoint"
else
  say "SLURM does not put it back into the queue, see above; submit it again to resume"
fi
exit $code
