#!/usr/bin/env bash
# nmt on Cloud TPU.
#
#   bash FILE        all steps, from `create` to `delete`
#   bash FILE STEP   a step: create, install, run, fetch, delete
#
# A slice costs money from `create` to `delete`. Keep this shell open while the job runs,
# for example in tmux: it restarts the job and creates preempted slices again.
# Needs: gcloud with your login, `ssh-add ~/.ssh/google_compute_engine`, and a clone as
# the current folder. The hosts get its last commit, not uncommitted changes.
set -euo pipefail

project=my-project
zone=us-central2-b
accelerator=v4-8
restarts=20 # maximum after faults and crashes
slices=(
  nmt-0
  nmt-1
  nmt-2
)
# The command of each slice, which all of its hosts run.
commands=(
  'cd code && exec flock .lock .venv/bin/python sweep.py --config=configs/luong_nmt.py:short --workdir=/mnt/shared/nmt --sweep=configs/sweeps/alignments.py --workers=1'
  'cd code && { for _ in {1..360}; do [ -e /mnt/shared/nmt/sweep.json ] && break; sleep 5; done; } && exec flock .lock .venv/bin/python sweep.py --config=configs/luong_nmt.py:short --workdir=/mnt/shared/nmt --sweep=configs/sweeps/alignments.py --workers=1 --worker'
  'cd code && { for _ in {1..360}; do [ -e /mnt/shared/nmt/sweep.json ] && break; sleep 5; done; } && exec flock .lock .venv/bin/python sweep.py --config=configs/luong_nmt.py:short --workdir=/mnt/shared/nmt --sweep=configs/sweeps/alignments.py --workers=1 --worker'
)

# Files that the hosts need.
files=(
  configs/luong_nmt.py
  configs/sweeps/alignments.py
)

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
  tpu create "$1" --accelerator-type="$accelerator" --version=tpu-ubuntu2204-base
}

install() {
  git archive --format=tar.gz --output="$1.tar.gz" HEAD &&
    tpu scp "$1.tar.gz" "$1:code.tar.gz" --worker=all &&
    rm "$1.tar.gz" &&
    tpu ssh "$1" --worker=all --command='mkdir -p code && tar -xzf code.tar.gz -C code && cd code && python3 -m pip install --quiet --user uv && python3 -m uv venv --quiet --allow-existing --python=3.12 .venv && python3 -m uv pip install --quiet --python=.venv/bin/python --requirement=requirements.txt '"'"'jax[tpu]'"'"' && sudo apt-get install --yes --quiet nfs-common && sudo mkdir -p /mnt/shared && { mountpoint -q /mnt/shared || sudo mount -t nfs 10.0.0.2:/share /mnt/shared; } && sudo install -d -o "$USER" /mnt/shared/nmt'
}

# Runs a command on all hosts of a slice until it is done or fails for good.
run() {
  local slice=$1 command=$2 restarted=0 status state
  while true; do
    status=0
    tpu ssh "$slice" --worker=all --command="$command" || status=$?
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

# Leaves a copy of the workdir in fetched/nmt.
fetch() {
  tpu ssh "${slices[0]}" --worker=0 --command='cd code && tar -czf ~/run.tar.gz -C /mnt/shared/nmt .'
  tpu scp "${slices[0]}:run.tar.gz" nmt.run.tar.gz --worker=0
  mkdir -p fetched/nmt
  tar -xzf nmt.run.tar.gz -C fetched/nmt
  rm nmt.run.tar.gz
}

delete() {
  tpu delete "$1" --quiet
}

# Runs a step for all slices at the same time.
each() {
  local i pids=() failed=0
  if [ "${#slices[@]}" = 1 ]; then
    "$1" "${slices[0]}" "${commands[0]}"
    return
  fi
  for i in "${!slices[@]}"; do
    "$1" "${slices[i]}" "${commands[i]}" &
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
    trap 'echo "nmt may cost money: bash $0 run resumes, bash $0 delete ends it" >&2' EXIT
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
