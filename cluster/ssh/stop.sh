#!/usr/bin/env bash
# Stop what start.sh started: stop.sh HOSTS
set -euo pipefail
hosts=$1 state=${STATE:-.distagg-cluster}

mapfile -t names < <(sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$hosts")
for host in "${names[@]}"; do
  ssh -o BatchMode=yes "$host" "for file in $state/*-$host.pid; do
    [ -e \"\$file\" ] && kill \$(cat \"\$file\") 2> /dev/null; rm -f \"\$file\"; done; true"
done
