"""The status of a run: which steps are done, which is running, and by which process."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from distagg.pipeline.folder import RunFolder
from distagg.pipeline.spec import Job, make_job


def job_of(folder: RunFolder) -> Job:
    """The job that created a run directory."""
    return make_job(folder.read("job.json"))


def status(path: Path) -> dict[str, Any]:
    """``state`` is finished, running, or stopped (resumable); steps with their seconds, parts and rounds."""
    folder = RunFolder(path)
    body = folder.read("job.json")
    events = folder.events()
    holder = folder.holder()
    state = "finished" if folder.finished else "running" if holder else "stopped"
    steps = [_step(folder, name, values["do"], events) for name, values in body["steps"].items()]
    return {
        "run": str(path), "name": body["name"], "state": state, "driver": holder, "steps": steps,
        "drivers": sum(event["event"] in ("started", "resumed") for event in events),
        "last": events[-1] if events else None,
    }  # fmt: skip


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
        row["why"] = "; ".join(why)
    reasons = [event["why"] for event in mine if event["event"] == "part anew"]
    if reasons:
        row["why"] = "; ".join(f"{text} ({count} parts)" for text, count in Counter(map(_kind, reasons)).most_common())
    rounds = [event["round"] for event in mine if event["event"].startswith("checkpoint")]
    if rounds and not done:
        row["saved after round"] = rounds[-1]
    return row


def _kind(why: str) -> str:
    """A reason without the numbers of its blocks."""
    return re.sub(r"blocks? [\d, ]+(and \d+ more )?", "blocks ", why)
