"""A job every night by Prefect: python prefect_flow.py JOB.toml serves the flow, and Prefect calls it at two."""

import subprocess
import sys

from prefect import flow, task

INFRASTRUCTURE = 4  # the exit code of a run that can be resumed


@task(retries=3, retry_delay_seconds=300)
def run_job(job: str) -> int:
    code = subprocess.run(["distagg", "run", job]).returncode
    if code == INFRASTRUCTURE:
        raise RuntimeError(f"{job} stopped; the next attempt resumes it")
    return code


@flow
def nightly(job: str) -> None:
    code = run_job(job)
    if code > 1:  # 1 is done, but a fit did not converge
        raise ValueError(f"{job}: distagg ended with {code}; its message says what is wrong")


if __name__ == "__main__":
    nightly.serve("nightly", cron="0 2 * * *", parameters={"job": sys.argv[1]})
