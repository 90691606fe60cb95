#!/usr/bin/env bash
# @@name on Cloud TPU.
#
#   bash FILE        all steps, from `create` to `delete`
#   bash FILE STEP   a step: create, install, run, fetch, delete
#
# A slice costs money from `create` to `delete`. Keep this shell open while the job runs,
# for example in tmux: it restarts the job and creates preempted slices again.
# Needs: gcloud with your login, `ssh-add ~/.ssh/google_compute_engine`, and a clone as
# the current folder. The hosts get its last commit, not uncommitted changes.
set -euo pipefail

project=@@project
zone=@@zone
accelerator=@@accelerator
restarts=@@restarts # maximum after faults and crashes
slices=(@@slices)
files=(@@files) # that the hosts need
# Words for the shell of a host.
command=@@command
workdir=@@workdir
started=@@started
share=@@storage

check() {
  local file
  for file in "${files[@]}"; do
    if ! git cat-file -e "HEAD:./$file" 2>/dev/null; then
      echo "error: $file is not in the last commit, which the hosts get" >&2
      exit 1
    fi
  done
}

tpu() {
  gcloud compute tpus tpu-vm "$@" --project="$project" --zone="$zone"
}

create() {
  tpu create "$1" --accelerator-type="$accelerator" --version=@@version@@preemptible
}

setup="mkdir -p code && tar -xzf code.tar.gz -C code && cd code && \
python3 -m pip install --quiet --user uv && \
python3 -m uv venv --quiet --allow-existing --python=3.12 .venv && \
python3 -m uv pip install --quiet --python=.venv/bin/python \
--requirement=requirements.txt 'jax[tpu]'"
if [ -n "$share" ]; then
  setup+=" && sudo apt-get install --yes --quiet nfs-common && \
sudo mkdir -p @@shared && \
{ mountpoint -q @@shared || sudo mount -t nfs $share @@shared; } && \
sudo install -d -o \"\$USER\" $workdir"
fi

install() {
  git archive --format=tar.gz --output="$1.tar.gz" HEAD &&
    tpu scp "$1.tar.gz" "$1:code.tar.gz" --worker=all &&
    rm "$1.tar.gz" &&
    tpu ssh "$1" --worker=all --command="$setup"
}

# Runs the command on all hosts of a slice until it is done or fails for good.
run() {
  local slice=$1 restarted=0 status state
  # flock waits for a process that a lost connection has left behind.
  local line="cd code && exec flock .lock $command"
  if [ "$2" != 0 ]; then
    # Joins the sweep when the first slice has started it.
    line="for _ in {1..360}; do [ -e $started ] && break; sleep 5; done; $line --worker"
  fi
  while true; do
    status=0
    tpu ssh "$slice" --worker=all --command="$line" || status=$?
    if [ "$status" = 0 ]; then
      return 0
    fi
    state=$(tpu describe "$slice" --format='value(state)' || true)
    if [ "$state" = PREEMPTED ] || [ "$state" = TERMINATED ]; then
      echo "$slice is $state: creating it again" >&2
      tpu delete "$slice" --quiet || true
      until create "$slice"; do sleep 300; done
      install "$slice" || return
      continue
    fi
    # 1: an error of the user; 75: a fault; 130 and 143: a signal; others: a crash, or a
    # lost connection.
    case "$status" in
      1) return 1 ;;
      130 | 143) ;;
      *)
        restarted=$((restarted + 1))
        if [ "$restarted" -gt "$restarts" ]; then
          return "$status"
        fi
        ;;
    esac
    echo "$slice: exit status $status, starting again" >&2
    sleep 10
  done
}

# Leaves a copy of the workdir in fetched/@@name.
fetch() {
  tpu ssh "${slices[0]}" --worker=0 --command="cd code && tar -czf ~/run.tar.gz -C $workdir ."
  tpu scp "${slices[0]}:run.tar.gz" @@name.run.tar.gz --worker=0
  mkdir -p fetched/@@name
  tar -xzf @@name.run.tar.gz -C fetched/@@name
  rm @@name.run.tar.gz
}

delete() {
  tpu delete "$1" --quiet
}

# Runs a step for all slices at the same time.
each() {
  local i pids=() failed=0
  if [ "${#slices[@]}" = 1 ]; then
    "$1" "${slices[0]}" 0
    return
  fi
  for i in "${!slices[@]}"; do
    "$1" "${slices[i]}" "$i" &
    pids+=($!)
  done
  trap 'kill "${pids[@]}" 2>/dev/null; exit 130' INT TERM
  for i in "${pids[@]}"; do
    wait "$i" || failed=$?
  done
  trap 'exit 130' INT TERM
  return "$failed"
}

trap 'exit 130' INT TERM
case "${1:-all}" in
  create)
    check
    each create
    ;;
  install | run | delete) each "$1" ;;
  fetch) fetch ;;
  all)
    check
    trap 'echo "@@name may cost money: bash $0 run resumes, bash $0 delete ends it" >&2' EXIT
    each create
    each install
    each run
    fetch
    each delete
    trap - EXIT
    ;;
  *)
    echo "error: $1 is unknown: must be create, install, run, fetch or delete" >&2
    exit 1
    ;;
esac
