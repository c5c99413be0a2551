"""The commands about jobs: run, plan, resume, status, report, doctor, warm."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from distagg.cli.commands import run_in, say
from distagg.errors import InfrastructureError, UsageError
from distagg.pipeline.fields import json_schema
from distagg.pipeline.folder import RunFolder
from distagg.pipeline.page import how_counted, write_run_report
from distagg.pipeline.plan import plan
from distagg.pipeline.run import drive
from distagg.pipeline.spec import Job, read_job
from distagg.pipeline.status import job_of, status
from distagg.reports.scaling import scaling_tables
from distagg.reports.terminal import render_table
from distagg.storage.paths import local

RUN = "a run directory (its lease, events and checkpoints)"


def run_command(arguments: argparse.Namespace) -> None:
    if arguments.schema:
        print(json.dumps(json_schema(), indent=1))
        return
    _drive(_job(arguments), arguments, local(arguments.output, RUN) if arguments.output else None)


def resume_command(arguments: argparse.Namespace) -> None:
    folder = RunFolder(local(arguments.folder, RUN).resolve())
    if not folder.begun:
        raise UsageError(f"{arguments.folder} is not a run directory; 'distagg run JOB.toml' creates one")
    job = job_of(folder)
    named = folder.path.parent == Path(job.runs) / job.name
    _drive(_placed(job, arguments), arguments, folder.path, point=named)


def plan_command(arguments: argparse.Namespace) -> None:
    rows = plan(_job(arguments), trial=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    body = [
        [
            row["step"], row["do"], _count(row["entries"]), _count(row["chunks"]),
            f"{row['seconds']:,.1f}" if "seconds" in row else "?",
            f"{row['memory'] / 2**20:,.0f}" if "memory" in row else "?",
        ]
        for row in rows
    ]  # fmt: skip
    print(render_table(["step", "does", "entries", "chunks", "seconds", "MB a process"], body, "llrrrr"))
    say(
        "seconds and memory are extrapolated from one chunk; '?' is unknown until its input exists; nothing was written"
    )


def status_command(arguments: argparse.Namespace) -> None:
    state = status(local(arguments.folder, RUN))
    if arguments.json:
        print(json.dumps(state, indent=1))
        return
    rest = [" ".join(f"{k} {v}" for k, v in s.items() if k not in ("step", "do", "state")) for s in state["steps"]]
    rows = [[s["step"], s["do"], s["state"], more] for s, more in zip(state["steps"], rest, strict=True)]
    print(render_table(["step", "does", "state", ""], rows, "llll"))
    print(f"\n{state['name']}: {state['state']}" + (f", by {state['driver']}" if state["driver"] else ""))
    if state["state"] == "stopped":
        say(f"resume it with: distagg resume {arguments.folder}")


def report_command(arguments: argparse.Namespace) -> None:
    folder = RunFolder(local(arguments.folder, RUN))
    file = write_run_report(job_of(folder), folder)
    print(json.dumps({"report": str(file)}) if arguments.json else f"report: {file}")


def doctor_command(arguments: argparse.Namespace) -> None:
    from distagg.pipeline.doctor import BAD, examine

    rows = examine(cluster=not arguments.no_cluster)
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        print(render_table(["check", "state", "found", "what to do"], [list(row.values()) for row in rows], "llll"))
    bad = [row["check"] for row in rows if row["state"] == BAD]
    if bad:
        raise InfrastructureError(f"this machine cannot run distagg: {', '.join(bad)}")


def warm_command(arguments: argparse.Namespace) -> None:
    from distagg.pipeline.warm import warm

    took: dict[str, float] = {}

    def tell(name: str, seconds: float) -> None:
        took[name] = round(seconds, 2)
        say(f"{name}: {seconds:.1f} s")

    folder = warm(arguments.models, tell)
    print(json.dumps({"folder": str(folder), "seconds": took}) if arguments.json else f"compiled code: {folder}")


def _job(arguments: argparse.Namespace) -> Job:
    if arguments.job is None:
        raise UsageError("found no job file, expected distagg run JOB.toml")
    seed = [] if arguments.seed is None else [f"seed={arguments.seed}"]
    return _placed(read_job(Path(arguments.job), [*arguments.overrides, *seed]), arguments)


def _placed(job: Job, arguments: argparse.Namespace) -> Job:
    """The job with the cluster options of the command line."""
    if arguments.scheduler is not None:
        return dataclasses.replace(job, place={"workers": 0, "scheduler": arguments.scheduler})
    if arguments.workers is not None:
        return dataclasses.replace(job, place={"workers": arguments.workers})
    return job


def _drive(job: Job, arguments: argparse.Namespace, target: Path | None, *, point: bool = False) -> None:
    cluster = argparse.Namespace(workers=job.place["workers"] or None, scheduler=job.place.get("scheduler"))
    folder = drive(job, lambda: run_in(cluster), target, say, point=point)
    if arguments.json:
        print(json.dumps({"run": str(folder.path), "metrics": folder.read("metrics.json")}, indent=1))
    else:
        _show(folder.read("metrics.json"), how_counted(job, folder))
        for step in job.steps:
            if step.do == "scale":
                for title, head, rows in scaling_tables(json.loads(folder.output(step).read_text(encoding="utf-8"))):
                    print(f"{title}\n{render_table(head, rows, 'l' + 'r' * (len(head) - 1))}\n")
        say(f"report: {folder.path / 'report.html'}")


def _show(metrics: dict[str, Any], counted: dict[str, str]) -> None:
    """Print the metrics of evaluate and compare steps."""
    for step, values in metrics.items():
        rows = values if all(isinstance(value, dict) for value in values.values()) else {step: values}
        names = list(next(iter(rows.values())))
        body = [[name, *(f"{100 * values[metric]:.2f}" for metric in names)] for name, values in rows.items()]
        print(render_table([step, *names], body))
        print(counted[step])


def _count(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"
