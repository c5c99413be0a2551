"""Whether what a step published is still what it published."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

from distagg.dataset.manifest import MANIFEST, manifest_file
from distagg.engine.runner import Runner
from distagg.errors import DistaggError, InfrastructureError, UsageError
from distagg.models.base import collecting, not_converged
from distagg.pipeline.folder import RUN_FORMAT, RunFolder, as_json
from distagg.pipeline.key import difference, environment, resume_key, short
from distagg.pipeline.page import write_run_report
from distagg.pipeline.plan import plan
from distagg.pipeline.reuse import Before, find_before, step_key, take_step
from distagg.pipeline.since import changes_since, told
from distagg.pipeline.spec import Job, Step
from distagg.pipeline.steps import STEPS, Site, metrics_of, tidy
from distagg.storage.atomic import MARKER, digest, sync, write_whole
from distagg.types import SCHEMA_VERSION


def files_of(made: Path, root: Path) -> list[dict[str, Any]]:
    """Every file of an output: path from ``root``, bytes, SHA-256 (from the output's own manifest where it has it)."""
    if made.is_file():
        return [_file(made, root)]
    known = {one["path"]: one["sha256"] for one in _listed(made)}
    inside = sorted(file for file in made.rglob("*") if file.is_file())
    return [_file(file, root, known.get(str(file.relative_to(made)))) for file in inside]


def sound(made: Path) -> str | None:
    """None, or the name of the first file that is damaged, by the hashes in the output's own manifest."""
    if made.is_file():
        try:
            if made.suffix == ".json":
                json.loads(made.read_bytes())
        except ValueError:
            return made.name
        return None
    if not (made / MARKER).is_file():
        return MARKER
    try:
        for one in _listed(made):
            if digest(made / one["path"]) != one["sha256"]:
                return str(one["path"])
    except (OSError, ValueError, KeyError, TypeError):
        return manifest_file(made).name
    return None


def _listed(made: Path) -> list[dict[str, Any]]:
    body = json.loads(manifest_file(made).read_text(encoding="utf-8"))
    return [*body.get("files", ()), *body.get("fits", ())]


def _file(file: Path, root: Path, sha256: str | None = None) -> dict[str, Any]:
    return {"path": str(file.relative_to(root)), "bytes": file.stat().st_size, "sha256": sha256 or digest(file)}


# Retention: of a job's finished runs the newest so many are kept.
#
# Deleted is only what is certainly a finished run of this job: a directory beside the new run, under the name of its
# key, whose manifest says so, that nobody holds, and to which ``latest`` does not point. It is renamed first, so that
# nobody meets half a run. Unfinished runs stay: somebody may want to resume them.


_GONE = re.compile(r"\.gone-[0-9a-f]{12}")


def retain(root: Path, name: str, keep: int, newest: str) -> list[str]:
    """Delete old runs of the job ``name`` in ``root``, keeping ``keep`` with ``newest``; gives the names deleted."""
    for left in root.iterdir():  # of a driver that died while it deleted
        if _GONE.fullmatch(left.name) and left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
    pointer = root / "latest"
    spared = {newest, os.readlink(pointer) if pointer.is_symlink() else newest}
    runs = [run for run in root.iterdir() if run.name not in spared and finished_run(run, name)]
    runs.sort(key=lambda run: ((run / MARKER).stat().st_mtime_ns, run.name), reverse=True)
    deleted = []
    for run in runs[max(0, keep - len(spared)) :]:
        with suppress(InfrastructureError), RunFolder(run).lease():  # held: somebody is at it
            gone = root / f".gone-{run.name}"
            os.rename(run, gone)
            shutil.rmtree(gone)
            deleted.append(run.name)
    return deleted


def finished_run(path: Path, name: str) -> bool:
    """Whether a path is a finished run of a job, and nothing else."""
    if path.is_symlink() or not path.is_dir() or not (path / MARKER).is_file():
        return False
    folder = RunFolder(path)
    try:
        body, key = folder.read(MANIFEST), folder.read("key.json")
        return (body["format"], body["name"], body["key"], short(key)) == (RUN_FORMAT, name, path.name, path.name)
    except (DistaggError, KeyError, TypeError):
        return False


# The driver of a job: step after step in a run directory, resumed where an earlier driver stopped.
#
# A step is done when its output is published, which happens in one rename. The end of the run is its manifest, then
# ``_SUCCESS``, then the ``latest`` pointer. So a driver may die between any two moves: the next one finds what is
# whole, removes what is not, and goes on to the same bytes.


Place = Callable[[], AbstractContextManager[Runner]]


def drive(
    job: Job, place: Place, target: Path | None = None, say: Callable[[str], None] = print, *, point: bool = False
) -> RunFolder:
    """Run a job, or what is left of it, in ``target`` or in the folder that its resume key names.

    In the second case, or when ``point`` asks for it, the run is one of a job's runs in one folder: it takes over from
    the latest what did not change, ``latest`` is set to it, and old runs are deleted as the job's ``keep`` says.
    """
    key = resume_key(job)
    path = target if target is not None else Path(job.runs) / job.name / short(key)
    folder = RunFolder(path)
    _refuse_strange(folder, key)
    among = point or target is None
    path.mkdir(parents=True, exist_ok=True)
    with folder.lease():
        if folder.finished:
            say(f"done already: {path}")
        else:
            _run(job, folder, key, place, say, among)
        if among:
            point_to(path)
            if job.keep is not None:
                for name in retain(path.parent, job.name, job.keep, path.name):
                    folder.say("run deleted", run=name, keep=job.keep)
                    say(f"deleted the old run {path.parent / name}: keep = {job.keep}")
    for step in job.steps:
        for note in folder.notes(step):
            not_converged(note)
    return folder


def _refuse_strange(folder: RunFolder, key: dict[str, Any]) -> None:
    """Refuse a folder that is something else, or a run of something else."""
    if folder.begun:
        lines = difference(folder.read("key.json"), key)
        if lines:
            raise UsageError(
                f"{folder.path} was begun with something else, so nothing of it can be used:\n  "
                + "\n  ".join(lines)
                + "\nput it back, or run the job in another directory"
            )
    elif folder.path.exists() and (
        not folder.path.is_dir() or any(not _ours(entry.name) for entry in folder.path.iterdir())
    ):
        raise UsageError(f"output {folder.path} exists already and is no run directory; name another path")


def _ours(name: str) -> bool:
    return name.startswith(".") or name in ("lease", "job.json", "environment.json", "plan.json", "events.jsonl")


def _run(
    job: Job, folder: RunFolder, key: dict[str, Any], place: Place, say: Callable[[str], None], among: bool
) -> None:
    resumed = folder.begun
    if not resumed:
        folder.write("job.json", job.to_dict())
        folder.write("environment.json", environment())
        folder.write("plan.json", plan(job))
        folder.write("key.json", key)
    folder.say("resumed" if resumed else "started", process=os.getpid(), place=job.place)
    say(f"{'resuming' if resumed else 'run'}: {folder.path}")
    before = find_before(folder) if among else None
    try:
        with ExitStack() as stack:
            held: list[Runner] = []

            def runner() -> Runner:
                if not held:
                    try:
                        held.append(stack.enter_context(place()))
                    except (RuntimeError, TimeoutError) as error:  # a worker lost while the cluster starts
                        raise InfrastructureError(f"the cluster did not start: {error}") from error
                return held[0]

            _steps(job, Site(job, folder, runner, before, among), say)
        _finish(job, folder, key, before, say)
    except KeyboardInterrupt as stop:
        folder.say("interrupted", by=str(stop) or "SIGINT")
        say(f"stopped; go on with: distagg resume {folder.path}")
        raise
    except MemoryError as error:
        folder.say("failed", error="out of memory")
        raise InfrastructureError(
            f"out of memory; take smaller chunks or fewer workers, then: distagg resume {folder.path}"
        ) from error
    except (InfrastructureError, OSError) as error:
        folder.say("failed", error=str(error))
        say(f"go on with: distagg resume {folder.path}")
        raise
    except Exception as error:
        folder.say("failed", error=f"{type(error).__name__}: {error}")
        raise


def _steps(job: Job, site: Site, say: Callable[[str], None]) -> None:
    folder, before = site.folder, site.before
    output = folder.path / "output"
    output.mkdir(exist_ok=True)
    for left in output.glob(".*.staging-*"):  # of a driver that died; the lease says that it is gone
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    for n, step in enumerate(job.steps, start=1):
        if _standing(folder, step):
            folder.say("step there already", step=step.name)
            say(f"{n}/{len(job.steps)} {step.name}: there already")
        else:
            began = time.perf_counter()
            why = _taken(job, step, site) if site.among else []
            if why is None:
                assert before is not None
                folder.say("step reused", step=step.name, run=before.name)
                say(f"{n}/{len(job.steps)} {step.name}: as in {before.name}, where it read the same")
                continue
            folder.say("step", step=step.name, do=step.do, **({"why": why} if why else {}))
            collecting(lambda step=step: STEPS[step.do](step, site))  # type: ignore[misc]  # notes are kept in the folder
            spent = time.perf_counter() - began
            folder.say("step done", step=step.name, seconds=round(spent, 3))
            say(f"{n}/{len(job.steps)} {step.name}: {step.do} in {spent:.1f} s")
        tidy(folder, step)


def _taken(job: Job, step: Step, site: Site) -> list[str] | None:
    """None where the step's output was taken over from the run before, else why it was not."""
    file = site.folder.step_key_file(step)
    file.parent.mkdir(exist_ok=True)
    write_whole(file, as_json(step_key(job, step, site.folder)))
    return take_step(step, site.folder, site.before)


def _standing(folder: RunFolder, step: Step) -> bool:
    """Whether the step's output is there and sound; what is damaged is removed, to be made again."""
    if not folder.done(step):
        return False
    damaged = sound(folder.output(step))
    if damaged is None:
        return True
    folder.say("output damaged", step=step.name, file=damaged)
    made = folder.output(step)
    shutil.rmtree(made) if made.is_dir() else made.unlink()
    return False


def _finish(
    job: Job, folder: RunFolder, key: dict[str, Any], before: Before | None, say: Callable[[str], None]
) -> None:
    folder.write("metrics.json", metrics_of(job, folder))
    if before is not None:
        changes = changes_since(before.folder, folder, job)
        folder.write("changes.json", changes)
        say(told(changes))
    write_run_report(job, folder)
    files = [one for step in job.steps for one in files_of(folder.output(step), folder.path)]
    metrics = folder.path / "metrics.json"
    files.append({"path": metrics.name, "bytes": metrics.stat().st_size, "sha256": digest(metrics)})
    notes = {step.name: folder.notes(step) for step in job.steps if folder.notes(step)}
    body = {"format": RUN_FORMAT, "schema": SCHEMA_VERSION, "name": job.name, "key": short(key), "notes": notes}
    folder.write(MANIFEST, {**body, "files": files})
    write_whole(folder.path / MARKER, b"")
    folder.say("finished")


def point_to(run: Path) -> None:
    """``latest`` beside the run directory names the newest run that succeeded, in one step."""
    pointer, fresh = run.parent / "latest", run.parent / f".latest-{uuid.uuid4().hex[:8]}"
    if pointer.is_symlink() and os.readlink(pointer) == run.name:
        return
    for left in run.parent.glob(".latest-*"):
        left.unlink(missing_ok=True)
    os.symlink(run.name, fresh)
    os.replace(fresh, pointer)
    sync(run.parent)
