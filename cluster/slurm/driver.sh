#!/usr/bin/env bash
# The driver of a job: it starts the workers, and comes back by itself until the job is done.
#   sbatch cluster/slurm/driver.sh JOB.toml CERTIFICATES [WORKER_JOBS]
# 'distagg run' does what is left of a job, so that starting it again is all that resuming takes.
#SBATCH --job-name=distagg-driver
#SBATCH --time=12:00:00
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@300
# --requeue: after a lost node SLURM starts it again; --open-mode: its log goes on; --signal: five minutes before the
# time is up the driver gets a signal, saves its checkpoint and ends with 143.
set -uo pipefail
job=$1
export DASK_CONFIG=$2
jobs=${3:-2}
python=${PYTHON:-python3} folder=${RECIPE:-cluster/slurm}  # from where sbatch was called

"$python" "$folder/workers.py" "$jobs" "$python" -m distagg run "$job" &
driver=$! stopped=
trap 'stopped=1; kill -TERM "$driver"' TERM
wait "$driver"
code=$?
if [ "$stopped" ]; then  # the signal ended the wait, not the driver
  wait "$driver"
  code=$?
fi
case $code in
  4 | 143) scontrol requeue "$SLURM_JOB_ID" ;;  # infrastructure, or out of time: go on later
esac
exit "$code"
