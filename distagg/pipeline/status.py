"""The status of a run (which steps are done, which is running, and by which process), and the data of its report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distagg.engine.inspect.quality import weight_rows
from distagg.engine.read_rankings import read_rankings
from distagg.engine.saved import load_model
from distagg.engine.tracking import learning_curve
from distagg.errors import InputError
from distagg.pipeline.folder import MEASURE, RunFolder, means_of, measured
from distagg.pipeline.records import checked_output
from distagg.pipeline.spec import Job, Step, make_job
from distagg.rankings.files import parts_of, read_part
from distagg.reports import compare_report, write_report
from distagg.reports.run_page import run_report
from distagg.reports.terminal import counted_by

IN_SAMPLE = (
    "measured on the queries that the model was trained on, so too optimistic for new queries; "
    "a compare step with folds gives held-out metrics"
)
QUERIES, ITEMS = 6, 10
READ_ROWS = 100_000


def job_of(folder: RunFolder) -> Job:
    """The job that created a run directory."""
    return make_job(folder.read("job.json"))


def status(path: Path) -> dict[str, Any]:
    """``state`` is finished, running, or stopped (resumable); steps with their seconds, parts and rounds."""
    folder = RunFolder(path)
    body = _job_body(folder)
    events = folder.events()
    holder = folder.holder()
    state = "finished" if folder.finished else "running" if holder else "stopped"
    steps = [_step(folder, name, values["do"], events) for name, values in body["steps"].items()]
    return {
        "run": str(path),
        "name": body["name"],
        "state": state,
        "driver": holder,
        "steps": steps,
        "drivers": sum(event["event"] in ("started", "resumed") for event in events),
        "last": events[-1] if events else None,
    }


def _job_body(folder: RunFolder) -> dict[str, Any]:
    """The job of a run directory as it was written; what it refers to may have gone."""
    body = folder.read("job.json")
    steps = body.get("steps") if isinstance(body, dict) else None
    good = isinstance(steps, dict) and all(isinstance(s, dict) and isinstance(s.get("do"), str) for s in steps.values())
    if not good or not isinstance(body.get("name"), str):
        raise InputError(
            str(folder.path / "job.json"), found="no name or steps", expected="a job written by 'distagg run'"
        )
    return dict(body)


def _step(folder: RunFolder, name: str, do: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [event for event in events if event.get("step") == name]
    seconds = [event["seconds"] for event in mine if event["event"] == "step done"]
    reused_from = next((event["run"] for event in mine if event["event"] == "step reused"), None)
    done = bool(seconds) or any(event["event"] in ("step there already", "step reused") for event in mine)
    row: dict[str, Any] = {"step": name, "do": do, "state": "done" if done else "begun" if mine else "waiting"}
    if seconds:
        row["seconds"] = seconds[-1]
    total = next((event["total"] for event in reversed(mine) if event["event"] == "parts"), None)
    if total is not None:
        sidecars = len(list((folder.path / "staging" / name).glob("part-*.json")))
        row["parts"] = f"{total if done else min(sidecars, total)} of {total}"
    if reused_from is not None:
        row["reused"] = f"all, from {reused_from}"
    counted = next((event for event in reversed(mine) if event["event"] == "parts reused"), None)
    if counted is not None:
        row["reused"] = f"{counted['count']} of {counted['of']} parts"
    why = next((event["why"] for event in reversed(mine) if event.get("why") and event["event"] == "step"), None)
    if why:
        row["why"] = "; ".join(map(str, why))
    reasons = [str(event["why"]) for event in mine if event["event"] == "part anew"]
    if reasons:
        row["why"] = "; ".join(f"{text} ({count} parts)" for text, count in Counter(map(_kind, reasons)).most_common())
    rounds = [event["round"] for event in mine if event["event"].startswith("checkpoint")]
    if rounds and not done:
        row["saved after round"] = rounds[-1]
    return row


def _kind(why: str) -> str:
    """A reason without the numbers of its blocks."""
    return re.sub(r"blocks? [\d, ]+(and \d+ more )?", "blocks ", why)


def write_run_report(job: Job, folder: RunFolder) -> Path:
    """Write report.html, and a page for each comparison."""
    pages, figures = {}, {}
    for step, result in _results(job, folder, "compare"):
        pages[step.name] = f"report-{step.name}.html"
        write_report(compare_report(result), folder.path / pages[step.name], overwrite=True)
    made = [step.name for step in job.steps if step.do == "board" and folder.done(step)]
    for step, _ in _results(job, folder, *MEASURE):
        figures[step.name] = means_of(checked_output(folder, step), step)
    tops = [top for step in job.steps if step.do == "rank" and folder.done(step) for top in _top(step, folder)]
    fitted = [step for step in job.steps if step.do in ("fit", "tune") and folder.done(step)]
    run = {
        **status(folder.path),
        "job": job.to_dict(),
        "environment": folder.read("environment.json"),
        "figures": figures,
        "counted": how_counted(job, folder),
        "pages": pages,
        "models": {step.name: _model(step, folder) for step in fitted},
        "boards": {name: f"output/{name}/board.html" for name in made},
        "rankings": tops,
        "notes": [n for step in job.steps for n in folder.notes(step)],
        "events": folder.events(),
        "scaling": {step.name: result for step, result in _results(job, folder, "scale")},
        "changes": folder.read("changes.json") if (folder.path / "changes.json").is_file() else None,
    }
    write_report(run_report(run), folder.path / "report.html", overwrite=True)
    return folder.path / "report.html"


def _model(step: Step, folder: RunFolder) -> dict[str, Any]:
    """The model of a step, its weights and its learning curve, for pictures."""
    fitted = load_model(folder.output(step))
    about = {"model": fitted.model.name, "goal": step.values["goal"]}
    return about | {"weights": weight_rows(fitted), "curve": learning_curve(fitted)}


def how_counted(job: Job, folder: RunFolder) -> dict[str, str]:
    """For each step with metrics: the protocol, and a warning if the model was trained on the same queries."""
    return {
        step.name: _counted(result) + (f"; {IN_SAMPLE}" if result.get("in_sample") else "")
        for step, result in _results(job, folder, *MEASURE)
    }


def _counted(result: dict[str, Any]) -> str:
    if "users" in result:
        return f"percent, mean over {result['users']:,} users whose ratings were completed by {result['complete']}"
    return counted_by(result["protocol"])


def _results(job: Job, folder: RunFolder, *kinds: str) -> Iterator[tuple[Step, dict[str, Any]]]:
    """The finished steps of these kinds, and their results."""
    for step in job.steps:
        if step.do in kinds and folder.done(step):
            yield step, measured(checked_output(folder, step), step)


def _top(step: Step, folder: RunFolder) -> list[dict[str, Any]]:
    """The first items of the first queries; reads only the first part of Parquet rankings."""
    output = folder.output(step)
    if output.is_dir():
        rows = [row for part in parts_of(output)[:1] for row in read_part(part).slice(0, READ_ROWS).to_pylist()]
    else:
        rows = read_rankings(output).slice(0, READ_ROWS).to_pylist()
    tops: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["query"] not in tops and len(tops) == QUERIES:
            break
        items = tops.setdefault(row["query"], [])
        if len(items) < ITEMS:
            items.append({"item": row["item"], "rank": row.get("rank", len(items) + 1), "score": row["score"]})
    return [{"model": step.name, "query": query, "items": items} for query, items in tops.items()]
