#!/bin/bash
# @@name on Slurm.
#
#   sbatch FILE              from the root of a clone that all nodes see, with .venv
#   squeue --name=@@name
#   scancel --name=@@name
#
# sbatch also reads SBATCH_ACCOUNT, SBATCH_QOS and SBATCH_TIMELIMIT, and other options
# before FILE, such as --time=24:00:00 --cpus-per-task=8 --mem=0.
@@options
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@120
set -uo pipefail
# Since Slurm 22.05, srun does not take --cpus-per-task from the job by itself.
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
fi

command=(@@command)
restarts=@@restarts # maximum after faults and crashes
if [ "${SLURM_ARRAY_TASK_ID:-0}" != 0 ]; then
  # Joins the sweep when task 0 of the array has started it.
  for _ in {1..360}; do [ -e @@started ] && break; sleep 5; done
  command+=(--worker)
fi

# When a task fails, srun ends the others, and returns the highest exit status of all.
# So each task maps its own: 203 for an error of the user (1), 202 for a fault (75), 201
# for a crash. A task that was asked to stop waits until the others have saved, too.
task='
trap : TERM INT
# The runs of a sweep are processes of their own, which must not join a job.
[ -z "${SLURM_ARRAY_TASK_ID:-}" ] || unset SLURM_STEP_NODELIST
"$@"
status=$?
case $status in
  0) ;;
  1) status=203 ;;
  75) status=202 ;;
  130 | 143) sleep 20 ;;
  *) status=201 ;;
esac
exit $status'

restarted=0
while true; do
  status=0
  srun --kill-on-bad-exit=1 bash -c "$task" task "${command[@]}" || status=$?
  case $status in
    0) exit 0 ;;
    203) exit 1 ;;
    130 | 143)
      # The time limit is near: Slurm has sent the signal to the tasks only. scancel
      # also ends this shell, so a canceled job does not come here.
      scontrol requeue "$SLURM_JOB_ID"
      exit $status
      ;;
  esac
  restarted=$((restarted + 1))
  if [ "$restarted" -gt "$restarts" ]; then
    exit $status
  fi
  echo "exit status $status (201: a crash, 202: a fault), starting again" >&2
  sleep 10
done
