"""The run directory: its files, its events, and the lock that keeps a second driver out.

::

    job.json key.json environment.json plan.json    the job and its environment, written before any step
    before.json                                     the previous run of the job in the same folder
    keys/STEP.json parts/STEP.json                  what a step's output, and a ranking's parts, depend on
    events.jsonl                                    one line per event
    staging/STEP/ checkpoints/STEP/ notes/          the state that a resumed run continues from
    output/STEP                                     the step's output: a dataset, a model, rankings, result.json
    metrics.json changes.json report.html           metrics, and the changes since the previous run
    manifest.json _SUCCESS                          the end of the run
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distagg.dataset.manifest import MANIFEST
from distagg.errors import InfrastructureError, InputError
from distagg.pipeline.spec import Step
from distagg.storage.atomic import MARKER, write_whole

RUN_FORMAT = "distagg-run"
LOCK_ATTEMPTS = 10
_ENDINGS = {"trec": ".trec", "csv": ".csv"}


@dataclass(frozen=True, slots=True)
class Kept:
    """Measurements stored in a folder, so that a resumed run does not repeat them; ``say`` is called for new ones."""

    folder: Path
    say: Callable[..., None]

    def __call__(self, name: str, measure: Callable[[], Any]) -> Any:
        file = self.folder / f"{name}.json"
        if not file.is_file():
            self.say("measuring", what=name)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps(measure()).encode())
        return json.loads(file.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class RunFolder:
    path: Path

    @property
    def begun(self) -> bool:
        """Whether a run was started in this directory."""
        return (self.path / "key.json").is_file()

    @property
    def finished(self) -> bool:
        return (self.path / MARKER).is_file()

    def output(self, step: Step) -> Path:
        """The step's output: a directory, or a file with the suffix of its format."""
        if step.do == "rank":
            return self.path / "output" / (step.name + _ENDINGS.get(step.values["format"], ""))
        return self.path / "output" / (step.name + (".json" if step.do in ("evaluate", "compare", "scale") else ""))

    def done(self, step: Step) -> bool:
        """Whether the step's output is published: files appear complete, directories have a marker."""
        output = self.output(step)
        return output.is_file() or (output / MARKER).is_file()

    def staging(self, step: Step) -> Path:
        return self.path / "staging" / step.name

    def checkpoints(self, step: Step) -> Path:
        return self.path / "checkpoints" / step.name

    def step_key_file(self, step: Step) -> Path:
        return self.path / "keys" / f"{step.name}.json"

    def recipe_file(self, step: Step) -> Path:
        return self.path / "parts" / f"{step.name}.json"

    def notes_file(self, step: Step) -> Path:
        return self.path / "notes" / f"{step.name}.json"

    def notes(self, step: Step) -> list[str]:
        file = self.notes_file(step)
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []

    def keep_notes(self, step: Step, notes: list[str]) -> None:
        """Store the models' notes before the output is published, so that a resumed run can repeat them."""
        if notes:
            self.notes_file(step).parent.mkdir(exist_ok=True)
            write_whole(self.notes_file(step), as_json(notes))

    def read(self, name: str) -> Any:
        file = self.path / name
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(
                str(file), found=f"nothing to read ({error})", expected="a directory made by 'distagg run'"
            ) from error

    def write(self, name: str, body: Any) -> None:
        write_whole(self.path / name, as_json(body))

    def say(self, event: str, **about: Any) -> None:
        """Append an event; ignores a full disk, which must not hide the original error."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, **about}) + "\n"
        with suppress(OSError), (self.path / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(line)

    def events(self) -> list[dict[str, Any]]:
        """All events, without a line that a crash cut off."""
        file, events = self.path / "events.jsonl", []
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else ():
            with suppress(ValueError):
                events.append(json.loads(line))
        return events

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Hold the lock of the directory: one driver at a time. The system frees it when the process dies."""
        with (self.path / "lease").open("a+") as file:
            for attempts_left in reversed(range(LOCK_ATTEMPTS)):  # ``holder`` takes the lock for a moment
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not attempts_left:
                        holder = self.holder() or "another driver"
                        raise InfrastructureError(
                            f"{self.path} is locked by {holder}, which runs it; wait for it, or stop it first"
                        ) from None
                    time.sleep(0.05)
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            yield

    def holder(self) -> str | None:
        """The process that holds the lock, or None."""
        try:
            with (self.path / "lease").open("r") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return file.read() or "another driver"
        except OSError:
            pass
        return None


def as_json(body: Any) -> bytes:
    return (json.dumps(body, indent=1) + "\n").encode()


__all__ = ["MANIFEST", "MARKER", "RUN_FORMAT", "RunFolder", "as_json"]
