"""The run directory: its key, its files, its events, and the lock that keeps a second driver out.

::

    job.json key.json environment.json plan.json    the job and its environment, written before any step
    before.json                                     the previous run of the job in the same folder
    keys/STEP.json parts/STEP.json                  what a step's output, and a ranking's parts, depend on
    made/STEP.json                                  the files of a step's output, by hash
    events.jsonl                                    one line per event
    staging/STEP/ checkpoints/STEP/ notes/          the state that a resumed run continues from
    output/STEP                                     the step's output: a dataset, a model, rankings, result.json
    metrics.json changes.json report.html           metrics, and the changes since the previous run
    pages.json manifest.json _SUCCESS               hashes of everything; the end of the run

The key names everything that the outputs of a job depend on. Where a job runs and how often it saves checkpoints are
not part of it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import distagg
from distagg.dataset.dataset import CHUNK_ENTRIES
from distagg.engine.fitting.train import TRAIN_ENTRIES, TRAIN_QUERIES
from distagg.engine.identity import installed, source_hash
from distagg.errors import InfrastructureError, InputError, hidden
from distagg.pipeline.spec import Job, Step
from distagg.storage.atomic import MARKER, digest, write_whole
from distagg.storage.paths import Place, Store, is_found, place
from distagg.storage.sealed import check_seal, committed, manifest_file, read_sealed, sealed
from distagg.types import SCHEMA_VERSION

RUN_FORMAT = "distagg-run"
LOCK_ATTEMPTS = 10
_ENDINGS = {"trec": ".trec", "csv": ".csv"}
PACKAGES = ("distagg", "numpy", "scipy", "numba", "pyarrow", "sparse", "dask", "distributed", "lightgbm")
LIBRARIES = ("numpy", "scipy", "numba", "pyarrow")  # the bits of results, or bytes of files, depend on them
SHOWN_DIFFERENCES = 8
PLAIN = ("metrics.json", "changes.json")
_EVENT: dict[str, Any] = {  # types of the fields of events that are read again
    "time": int | float, "step": str, "seconds": int | float, "run": str, "total": int, "count": int, "of": int,
    "round": int, "why": list | str,
}  # fmt: skip
_NEEDED = {  # fields without which an event of this kind cannot be read
    "step done": ("seconds",), "step reused": ("run",), "parts": ("total",), "parts reused": ("count", "of"),
    "part anew": ("why",), "checkpoint": ("round",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kept:
    """Measurements stored in a folder, so that a resumed run does not repeat them; ``say`` is called for new ones."""

    folder: Path
    say: Callable[..., None]

    def __call__(self, name: str, measure: Callable[[], Any]) -> Any:
        file = self.folder / f"{name}.json"
        if file.is_file():
            with suppress(InputError):  # damaged: measure again
                return read_sealed(file)["value"]
        self.say("measuring", what=name)
        self.folder.mkdir(parents=True, exist_ok=True)
        body = sealed({"value": measure()}, sort=False)
        write_whole(file, body)
        return json.loads(body)["value"]


MADE_AGAIN = "'distagg resume' makes it again"


def read_json(file: Path) -> Any:
    """What a step wrote; an InputError if the file is damaged. The next run notices that too, and makes it again."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        found, expected = f"a damaged file ({error})", "what a step of this run wrote"
        raise InputError(str(file), found=found, expected=expected, remedy=MADE_AGAIN) from error


MEASURE = ("evaluate", "compare", "tune")  # kinds of steps that report metrics


def measured(output: Path, step: Step) -> dict[str, Any]:
    """What a step reports: ``means``, ``protocol`` and more; that of a tune step stands in its model's manifest."""
    if step.do == "tune":
        tuned = read_sealed(manifest_file(output), MADE_AGAIN)["about"]["tuned"]
        means = {row["rule"]: {name: row[name] for name in tuned["metrics"]} for row in tuned["table"]}
        return {**tuned, "means": means}  # in the order of the table: a manifest has its keys sorted
    found: dict[str, Any] = read_json(output)
    return found


def means_of(output: Path, step: Step) -> dict[str, dict[str, float]]:
    """The metrics that a step reports, by model or rankings."""
    means = measured(output, step)["means"]
    return {step.values["rankings"]: means} if step.do == "evaluate" else means


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
        return read_json(file) if file.is_file() else []

    def keep_notes(self, step: Step, notes: list[str]) -> None:
        """Store the models' notes before the output is published, so that a resumed run can repeat them."""
        if notes:
            self.notes_file(step).parent.mkdir(exist_ok=True)
            write_whole(self.notes_file(step), as_json(notes))

    def read(self, name: str) -> Any:
        file = self.path / name
        try:
            body = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(
                str(file), found=f"nothing to read ({error})", expected="a directory made by 'distagg run'"
            ) from error
        return check_seal(body, file) if isinstance(body, dict) else body

    def write(self, name: str, body: Any) -> None:
        """Write a file, with a checksum of itself unless people read it; the manifest has the checksum of those."""
        write_whole(self.path / name, sealed(body, sort=False) if self._is_sealed(name, body) else as_json(body))

    @staticmethod
    def _is_sealed(name: str, body: Any) -> bool:
        return isinstance(body, dict) and name not in PLAIN

    def say(self, event: str, **about: Any) -> None:
        """Append an event; ignores a full disk, which must not hide the original error."""
        line = hidden(json.dumps({"time": round(time.time(), 3), "event": event, **about})) + "\n"
        with suppress(OSError), (self.path / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(line)

    def events(self) -> list[dict[str, Any]]:
        """All events, without lines that a crash cut off or that are damaged."""
        file, events = self.path / "events.jsonl", []
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else ():
            with suppress(ValueError, RecursionError):
                event = json.loads(line)
                if _is_event(event):
                    events.append(event)
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


def _is_event(event: Any) -> bool:
    """Whether a line of the log has the fields of its kind of event."""
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return False
    needed = _NEEDED.get(event["event"].split(" ")[0] if "checkpoint" in event["event"] else event["event"], ())
    return all(name in event for name in needed) and all(
        isinstance(value, _EVENT[name]) for name, value in event.items() if name in _EVENT
    )


def as_json(body: Any) -> bytes:
    return (json.dumps(body, indent=1) + "\n").encode()


def environment() -> dict[str, Any]:
    """Versions, machine and the settings of numerical libraries."""
    settings = {name: os.environ[name] for name in sorted(os.environ) if name.endswith("_NUM_THREADS")}
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "host": platform.node(),
        "cores": os.cpu_count(),
        "packages": {name: installed(name) for name in PACKAGES},
        "command": [hidden(word) for word in sys.argv[1:]],
        "settings": settings,
    }


def resume_key(job: Job) -> dict[str, Any]:
    """Configuration, inputs by their hashes, plan, code and seed."""
    inputs = sorted({path for step in job.steps for path in references(step) if is_found(path)})
    return {
        "steps": job.to_dict()["steps"],
        "order": [step.name for step in job.steps],
        "seed": job.seed,
        "inputs": {path: fingerprint(place(path)) for path in inputs},
        "plan": plan_key(),
        "code": code_key(),
    }


def plan_key() -> dict[str, int]:
    """How data is divided into chunks."""
    chunks = {"chunk_entries": CHUNK_ENTRIES, "train_entries": TRAIN_ENTRIES, "train_queries": TRAIN_QUERIES}
    return {"schema": SCHEMA_VERSION, **chunks}


def code_key() -> dict[str, str]:
    """Versions of the code that results depend on."""
    return {"distagg": distagg.__version__, "source": source_hash(), **{name: version(name) for name in LIBRARIES}}


def short(key: dict[str, Any]) -> str:
    """The key as twelve hexadecimal digits, the name of the run directory."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]


def difference(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The differences between two keys, one per line."""
    old, new = _flat(before), _flat(now)
    lines = [
        f"{name}: was {old.get(name, 'not there')}, is {new.get(name, 'not there')}"
        for name in sorted(old | new)
        if old.get(name) != new.get(name)
    ]
    more = [f"and {len(lines) - SHOWN_DIFFERENCES} more"] if len(lines) > SHOWN_DIFFERENCES else []
    return lines[:SHOWN_DIFFERENCES] + more


def fingerprint(path: Place) -> str:
    """A hash of the content of a path; of a directory with a manifest of hashes, the hash of the manifest."""
    if path.is_file():
        return digest(path)
    if isinstance(path, Store) or ((path / MARKER).is_file() and (path / MARKER).read_bytes()):  # names a version
        return digest(manifest_file(committed(path, "a dataset, rankings or a model")))
    manifest = manifest_file(path)
    if manifest.is_file() and "sha256" in manifest.read_text(encoding="utf-8", errors="replace"):
        return digest(manifest)
    total = hashlib.sha256()
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        total.update(f"{file.relative_to(path)} {digest(file)}\n".encode())
    return total.hexdigest()


def references(step: Step) -> list[str]:
    """What a step may read: names of steps, absolute paths, models' names."""
    named = [step.values.get(key) for key in ("dataset", "valid", "model", "rankings", "qrels", "users", "items")]
    return [reference for reference in (*named, *step.values.get("files", ())) if reference]


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: value}
    return {k: v for key, inner in value.items() for k, v in _flat(inner, f"{name}.{key}" if name else key).items()}
