#!/usr/bin/env bash
# Start a Dask cluster over ssh: the scheduler on the first host, worker processes on every host.
#   start.sh HOSTS CERTIFICATES [WORKERS]
# HOSTS is a file with one host per line, CERTIFICATES the folder of 'distagg certificates', at the same path on every host,
# WORKERS how many worker processes each host runs (default 1). Set PYTHON to the interpreter that has distagg there.
set -euo pipefail
hosts=$1 certificates=$2 workers=${3:-1}
python=${PYTHON:-python3} port=${PORT:-8786} state=${STATE:-.distagg-cluster}

mapfile -t names < <(sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$hosts")
scheduler=${names[0]}

run() {  # HOST NAME ARGUMENTS...: a dask command that keeps running there; its process id and its log are in $state
  local host=$1 name=$2
  shift 2
  ssh -o BatchMode=yes "$host" "mkdir -p $state; export DASK_CONFIG=$certificates
    nohup $python -m dask $* > $state/$name-$host.log 2>&1 < /dev/null & echo \$! > $state/$name-$host.pid"
}

run "$scheduler" scheduler scheduler --protocol tls --host "$scheduler" --port "$port" \
  --dashboard-address 127.0.0.1:8787
for host in "${names[@]}"; do
  run "$host" workers worker "tls://$scheduler:$port" --host "$host" --nworkers "$workers" --nthreads 1 \
    --dashboard-address 127.0.0.1:0 --death-timeout 120
done
echo "tls://$scheduler:$port"
