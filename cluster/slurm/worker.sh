#!/usr/bin/env bash

#SBATCH -J distagg-worker
#SBATCH -e logs/distagg-worker-%J.err
#SBATCH -o logs/distagg-worker-%J.out
#SBATCH -n 1
#SBATCH --cpus-per-task=4
#SBATCH --mem=15G
#SBATCH -t 02:00:00
export DASK_CONFIG=CERTIFICATES
export NUMBA_NUM_THREADS=1
PYTHON -m distributed.cli.dask_worker tls://SCHEDULER --name dummy-name --nthreads 1 --memory-limit 3.73GiB --nworkers 4 --nanny --death-timeout 300 --lifetime 110m --lifetime-stagger 5m --dashboard-address 127.0.0.1:0 --protocol tls:// --tls-ca-file CERTIFICATES/ca.pem --tls-cert CERTIFICATES/cert.pem --tls-key CERTIFICATES/key.pem
