"""The commands about jobs: run, plan, resume, status, report."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from distagg.cli.commands import Argument, Call, command, flag, option, run_in, say
from distagg.engine.import_plan import rehearse_made_up
from distagg.engine.worker_memory import parse_size
from distagg.errors import InputError, UsageError
from distagg.pipeline.fields import json_schema
from distagg.pipeline.folder import RunFolder, read_json
from distagg.pipeline.plan import Trial, plan
from distagg.pipeline.records import checked_output, record_pages
from distagg.pipeline.run import drive
from distagg.pipeline.spec import Job, read_job
from distagg.pipeline.status import how_counted, job_of, status, write_run_report
from distagg.pipeline.verify import damage_by_step
from distagg.reports.scaling_page import scaling_tables
from distagg.reports.terminal import import_text, render_table
from distagg.storage.paths import local

ON_PAPER = "extrapolated from an import of 320,000 made-up rows in this process; nothing was written"
RUN = "a run directory (its lease, events and checkpoints)"


JOB = (
    Argument("job", metavar="[JOB.toml]", required=False, help="a job file; 'distagg new KIND' writes one"),
    Argument("overrides", metavar="[key=value...]", nargs=-1, help="such as steps.ranked.model=borda"),
)
FOLDER = Argument("folder", metavar="RUN", help="a run directory, or 'latest' of a job's runs")


@command(
    "run",
    *JOB,
    option(
        "-o",
        "--output",
        metavar="RUN",
        help="the run directory (default: RUNS/NAME/KEY, where KEY is a hash of the job's inputs)",
    ),
    flag("--schema", help="print the JSON schema of job files and exit"),
    examples=("distagg run nightly.toml", "distagg run nightly.toml steps.model.model=rrf --workers 2"),
)
def run_command(call: Call, job: str | None, overrides: tuple[str, ...], output: str | None, schema: bool) -> None:
    if schema:
        print(json.dumps(json_schema(), indent=1))
        return
    _drive(call, _job(call, job, overrides), local(output, RUN) if output else None)


@command("resume", FOLDER, examples=("distagg resume runs/nightly/latest",))
def resume_command(call: Call, folder: str) -> None:
    begun = RunFolder(local(folder, RUN).resolve())
    if not begun.begun:
        raise UsageError(f"{folder} is not a run directory; 'distagg run JOB.toml' creates one")
    job = job_of(begun)
    named = begun.path.parent == Path(job.runs) / job.name
    _drive(call, _placed(call, job), begun.path, point=named)


@command(
    "plan",
    *JOB,
    option(
        "--rows",
        type=float,
        metavar="N",
        help="plan imports for N rows like those of their files, such as 1e11; without a job file: of TREC runs",
    ),
    option(
        "--bandwidth",
        metavar="SIZE",
        help="bytes a second that the storage delivers to all workers of an import, such as 10GB (default: no limit; "
        "the plan says what is needed)",
    ),
    flag(
        "--simulate",
        help="measure what scheduler and driver take for a task of an import, with --workers simulated workers, at "
        "most 1,000",
    ),
    examples=("distagg plan nightly.toml", "distagg plan --rows 1e11 --workers 1000 --bandwidth 50GB"),
)
def plan_command(
    call: Call,
    job: str | None,
    overrides: tuple[str, ...],
    rows: float | None,
    bandwidth: str | None,
    simulate: bool,
) -> None:
    if rows is not None and not 1 <= rows < float("inf"):
        raise UsageError(f"--rows: found {rows:g}, expected a number of at least 1")
    trial = Trial(rows=rows, bandwidth=_bandwidth(bandwidth), simulate=simulate)
    if job is None and rows is not None:
        planned = trial.planned(rehearse_made_up(), max(1, call.workers or 1), text=0.0)
        call.show(planned, import_text("made-up TREC runs", planned), note=ON_PAPER)
        return
    _show_plan(call, plan(_job(call, job, overrides), trial))


def _bandwidth(text: str | None) -> float | None:
    try:
        return None if text is None else float(parse_size(text))
    except UsageError as error:
        raise UsageError(f"--bandwidth: {error}") from error


def _show_plan(call: Call, rows: list[dict[str, Any]]) -> None:
    body = [
        [
            row["step"],
            row["do"],
            _count(row["entries"]),
            _count(row["chunks"]),
            f"{row['seconds']:,.1f}" if "seconds" in row else "?",
            f"{row['memory'] / 2**20:,.0f}" if "memory" in row else "?",
        ]
        for row in rows
    ]
    table = render_table(["step", "does", "entries", "chunks", "seconds", "MB a process"], body, "llrrrr")
    imports = [import_text(row["step"], row["import"]) for row in rows if "import" in row]
    call.show(
        rows,
        "\n\n".join([table, *imports]),
        note="seconds and memory are extrapolated from one chunk, of imports from the first lines of files; '?' is "
        "unknown until its input exists; nothing was written",
    )


@command(
    "status",
    FOLDER,
    flag("--verify", help="check the files of finished steps against their hashes"),
    cluster=False,
    examples=("distagg status runs/nightly/latest", "distagg status runs/nightly/latest --verify"),
)
def status_command(call: Call, folder: str, verify: bool) -> None:
    state = status(local(folder, RUN))
    damaged: list[str] = []
    if verify:
        states = damage_by_step(RunFolder(local(folder, RUN)))
        state["steps"] = [{**row, "files": states.get(row["step"], "none yet")} for row in state["steps"]]
        damaged = [f"step {name}, {words}" for name, words in states.items() if words != "verified"]
    rest = [" ".join(f"{k} {v}" for k, v in s.items() if k not in ("step", "do", "state")) for s in state["steps"]]
    rows = [[s["step"], s["do"], s["state"], more] for s, more in zip(state["steps"], rest, strict=True)]
    driver = f", by {state['driver']}" if state["driver"] else ""
    call.show(
        state,
        f"{render_table(['step', 'does', 'state', ''], rows, 'llll')}\n\n{state['name']}: {state['state']}{driver}",
        note=f"resume it with: distagg resume {folder}" if state["state"] == "stopped" or damaged else "",
    )
    if damaged:
        raise InputError(
            folder,
            found="; ".join(damaged),
            expected="files as they were written",
            remedy=f"'distagg resume {folder}' makes them again",
        )


@command("report", FOLDER, cluster=False, examples=("distagg report runs/nightly/latest",))
def report_command(call: Call, folder: str) -> None:
    begun = RunFolder(local(folder, RUN))
    file = write_run_report(job_of(begun), begun)
    record_pages(begun)
    call.show({"report": str(file)}, f"report: {file}")


def _job(call: Call, job: str | None, overrides: tuple[str, ...]) -> Job:
    if job is None:
        raise UsageError("found no job file, expected distagg run JOB.toml")
    seed = [] if call.seed is None else [f"seed={call.seed}"]
    return _placed(call, read_job(Path(job), [*overrides, *seed]))


def _placed(call: Call, job: Job) -> Job:
    """The job with the cluster options of the command line."""
    address, memory = call.address(), {} if call.memory is None else {"memory": call.memory}
    if address is not None:
        return dataclasses.replace(job, place={"workers": 0, "scheduler": address, **memory})
    if call.workers is not None:
        return dataclasses.replace(job, place={**job.place, "workers": call.workers, **memory})
    return dataclasses.replace(job, place={**job.place, **memory})


def _drive(call: Call, job: Job, target: Path | None, *, point: bool = False) -> None:
    cluster = (job.place["workers"] or None, job.place.get("scheduler"), job.place.get("memory"))
    folder = drive(job, lambda: run_in(*cluster), target, say, point=point)
    if call.json:
        print(json.dumps({"run": str(folder.path), "metrics": folder.read("metrics.json")}, indent=1))
    else:
        _show(folder.read("metrics.json"), how_counted(job, folder))
        for step in job.steps:
            if step.do == "scale":
                for title, head, rows in scaling_tables(read_json(checked_output(folder, step))):
                    print(f"{title}\n{render_table(head, rows, 'l' + 'r' * (len(head) - 1))}\n")
        say(f"report: {folder.path / 'report.html'}")


def _show(metrics: dict[str, Any], counted: dict[str, str]) -> None:
    """Print the metrics of evaluate and compare steps."""
    for step, values in metrics.items():
        rows = values if all(isinstance(value, dict) for value in values.values()) else {step: values}
        names = list(next(iter(rows.values())))
        body = [[name, *(f"{100 * values[metric]:.2f}" for metric in names)] for name, values in rows.items()]
        if step not in counted:
            expected = "a step of the job that evaluates or compares"
            raise InputError("metrics.json", found=f"a step '{step}'", expected=expected)
        print(render_table([step, *names], body))
        print(counted[step])


def _count(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"
