"""Run a command on SLURM workers, which come before it and end with it.

    python workers.py JOBS COMMAND...

JOBS is how many worker jobs are wanted at any time; the command gets ``--scheduler ADDRESS`` added. ``--script`` in
place of both prints the script of a worker job instead. Settings come from DASK_CONFIG: certificates, jobqueue.yaml.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def workers(**settings: object) -> object:
    from dask_jobqueue import SLURMCluster
    from distributed.security import Security

    prologue = [f"export DASK_CONFIG={os.environ['DASK_CONFIG']}", "export NUMBA_NUM_THREADS=1"]
    return SLURMCluster(security=Security(), protocol="tls://", job_script_prologue=prologue, **settings)


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--script"]:
        with workers() as cluster:
            print(cluster.job_script(), end="")
        return 0
    jobs, command = int(arguments[0]), arguments[1:]
    with workers() as cluster:
        cluster.adapt(minimum_jobs=jobs, maximum_jobs=jobs)  # a job that ends, for whatever reason, is replaced
        driver = subprocess.Popen([*command, "--scheduler", cluster.scheduler_address])
        signal.signal(signal.SIGTERM, lambda number, frame: driver.send_signal(signal.SIGTERM))
        return driver.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
