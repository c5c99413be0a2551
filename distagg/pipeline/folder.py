"""Figures that outlive the driver: what was measured before a crash is not measured again."""

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


@dataclass(frozen=True, slots=True)
class Kept:
    """Figures in a folder; ``say`` is told of those that are being measured."""

    folder: Path
    say: Callable[..., None]

    def __call__(self, name: str, measure: Callable[[], Any]) -> Any:
        file = self.folder / f"{name}.json"
        if not file.is_file():
            self.say("measuring", what=name)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps(measure()).encode())
        return json.loads(file.read_text(encoding="utf-8"))


# The run directory: what lies where, the events, and the lease that keeps a second driver out.
#
# ::
#
# job.json key.json environment.json plan.json    what is run, with what, before anything is done
# before.json                                     the run before, of a job's runs in one folder
# keys/STEP.json parts/STEP.json                  what a step's output, and a ranking's parts, depend on
# events.jsonl                                    one line for everything that happened
# staging/STEP/ checkpoints/STEP/ notes/          what a resumed run takes up again
# output/STEP                                     what the step made: a dataset, a model, rankings, result.json
# metrics.json changes.json report.html           figures, and what changed since the run before
# manifest.json _SUCCESS                          the end


RUN_FORMAT = "distagg-run"
LOOKS = 10
_ENDINGS = {"trec": ".trec", "csv": ".csv"}


@dataclass(frozen=True, slots=True)
class RunFolder:
    path: Path

    @property
    def begun(self) -> bool:
        """Whether it says what it is for."""
        return (self.path / "key.json").is_file()

    @property
    def finished(self) -> bool:
        return (self.path / MARKER).is_file()

    def output(self, step: Step) -> Path:
        """What the step makes: a directory, or a file that carries its format's ending."""
        if step.do == "rank":
            return self.path / "output" / (step.name + _ENDINGS.get(step.values["format"], ""))
        return self.path / "output" / (step.name + (".json" if step.do in ("evaluate", "compare", "scale") else ""))

    def done(self, step: Step) -> bool:
        """Whether the step's output is published: files appear whole, directories with their marker."""
        made = self.output(step)
        return made.is_file() or (made / MARKER).is_file()

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
        """What models noted, kept before the output is published: a resumed run must say it too."""
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
        """Add an event. A disk that is full must not hide what went wrong."""
        line = json.dumps({"time": round(time.time(), 3), "event": event, **about}) + "\n"
        with suppress(OSError), (self.path / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(line)

    def events(self) -> list[dict[str, Any]]:
        """All events; a line that was cut off by a crash is passed over."""
        file, found = self.path / "events.jsonl", []
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else ():
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Only one driver at a time. The system takes the lock back when its holder dies, however it dies."""
        with (self.path / "lease").open("a+") as file:
            for left in reversed(range(LOOKS)):  # whoever asks for the holder has it for a moment
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not left:
                        holder = self.holder() or "another driver"
                        raise InfrastructureError(
                            f"{self.path} is being run by {holder}; wait for it, or stop it first"
                        ) from None
                    time.sleep(0.05)
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            yield

    def holder(self) -> str | None:
        """Who holds the lease, or None when nobody does."""
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
