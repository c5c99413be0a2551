"""The driver of a job: runs step after step in a run directory, and resumes where an earlier driver stopped.

A step is done when its output is published, by one rename. A run ends with its manifest, then ``_SUCCESS``, then the
``latest`` pointer. A driver may therefore die at any moment: the next one checks the published outputs by their hashes,
removes damaged and incomplete ones, and continues to the same bytes.

Of a job's finished runs the newest ``keep`` are retained. The driver deletes a directory only if it is certainly a
finished run of this job: beside the new run, named by its key, with a matching manifest, not locked, and not the target
of ``latest``. It is renamed first, so that nobody sees half a run. Unfinished runs stay, because they can be resumed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

from distagg.engine.runner import Runner
from distagg.errors import DistaggError, InfrastructureError, UsageError
from distagg.models.base import collected_notes, not_converged
from distagg.pipeline.folder import RUN_FORMAT, RunFolder, as_json, difference, environment, resume_key, short
from distagg.pipeline.plan import plan
from distagg.pipeline.previous import Before, changes_since, find_before, reuse_step, step_key, summary
from distagg.pipeline.records import damage_of, damage_of_run, entry_of, record_directory, record_pages, recorded
from distagg.pipeline.spec import Job, Step
from distagg.pipeline.status import write_run_report
from distagg.pipeline.steps import STEPS, Site, metrics_of, tidy
from distagg.storage.atomic import MARKER, sync, write_whole
from distagg.storage.sealed import MANIFEST
from distagg.types import SCHEMA_VERSION

OpenRunner = Callable[[], AbstractContextManager[Runner]]
ENVIRONMENT, PLAN = "environment.json", "plan.json"
REWRITTEN = (ENVIRONMENT, PLAN, "before.json")  # files without which a run can go on
_DELETED = re.compile(r"\.gone-[0-9a-f]{12}")


def retain(root: Path, name: str, keep: int, newest: str) -> list[str]:
    """Delete old runs of the job ``name`` in ``root``, except the newest ``keep``; returns the deleted names."""
    for remnant in root.iterdir():  # of a driver that died while it deleted
        if _DELETED.fullmatch(remnant.name) and remnant.is_dir() and not remnant.is_symlink():
            shutil.rmtree(remnant)
    pointer = root / "latest"
    retained = {newest, os.readlink(pointer) if pointer.is_symlink() else newest}
    runs = [run for run in root.iterdir() if run.name not in retained and finished_run(run, name)]
    runs.sort(key=lambda run: ((run / MARKER).stat().st_mtime_ns, run.name), reverse=True)
    deleted = []
    for run in runs[max(0, keep - len(retained)) :]:
        with suppress(InfrastructureError), RunFolder(run).lease():  # locked: another driver uses it
            renamed = root / f".gone-{run.name}"
            os.rename(run, renamed)
            shutil.rmtree(renamed)
            deleted.append(run.name)
    return deleted


def finished_run(path: Path, name: str) -> bool:
    """Whether a path is certainly a finished run of the job ``name``."""
    if path.is_symlink() or not path.is_dir() or not (path / MARKER).is_file():
        return False
    folder = RunFolder(path)
    try:
        body, key = folder.read(MANIFEST), folder.read("key.json")
        return (body["format"], body["name"], body["key"], short(key)) == (RUN_FORMAT, name, path.name, path.name)
    except (DistaggError, KeyError, TypeError):
        return False


def drive(
    job: Job,
    open_runner: OpenRunner,
    target: Path | None = None,
    say: Callable[[str], None] = print,
    *,
    point: bool = False,
) -> RunFolder:
    """Run a job, or finish it, in ``target`` or in the folder named by its resume key.

    In the second case, or with ``point``, the run belongs to the series of the job's runs in one folder: it reuses
    unchanged steps of the latest run, ``latest`` then points to it, and old runs are deleted according to ``keep``.
    """
    key = resume_key(job)
    path = target if target is not None else Path(job.runs) / job.name / short(key)
    folder = RunFolder(path)
    _refuse_links(folder)
    _refuse_other(folder, key)
    among = point or target is None
    path.mkdir(parents=True, exist_ok=True)
    with folder.lease():
        if _still_whole(folder, job, say):
            say(f"done already: {path}")
        else:
            _run(job, folder, key, open_runner, say, among)
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


def _refuse_links(folder: RunFolder) -> None:
    """Refuse a run directory, or a folder or file of it, that is a symbolic link: runs write and delete in them."""
    inside = [*folder.path.iterdir(), *folder.path.glob("*/*")] if folder.path.is_dir() else []
    for path in (folder.path, *inside):
        if path.is_symlink():
            remedy = f"give {path.resolve()} itself" if path == folder.path else "remove the link"
            raise UsageError(f"{path} is a symbolic link, which runs do not follow; {remedy}")


def _still_whole(folder: RunFolder, job: Job, say: Callable[[str], None]) -> bool:
    """Whether the run is finished and every file is as it was made; damaged files are made again."""
    if not folder.finished:
        return False
    damaged = damage_of_run(folder, job.steps)
    if not damaged:
        return True
    folder.say("damaged", files=damaged)
    say(f"damaged since the run finished, and made again: {', '.join(damaged)}")
    (folder.path / MARKER).unlink()
    for name in damaged:
        if name in REWRITTEN:
            (folder.path / name).unlink()
    return False


def _refuse_other(folder: RunFolder, key: dict[str, Any]) -> None:
    """Refuse a folder that is not a run directory, or that belongs to a different job."""
    if folder.begun:
        lines = difference(folder.read("key.json"), key)
        if lines:
            raise UsageError(
                f"{folder.path} was created by a different job; cannot resume; "
                + "; ".join(lines)
                + "; undo these changes, or run the job in another directory"
            )
    elif folder.path.exists() and (
        not folder.path.is_dir() or any(not _ours(entry.name) for entry in folder.path.iterdir())
    ):
        raise UsageError(f"output {folder.path} exists already and is not a run directory; choose another path")


def _ours(name: str) -> bool:
    return name.startswith(".") or name in ("lease", "job.json", "environment.json", "plan.json", "events.jsonl")


def _run(
    job: Job, folder: RunFolder, key: dict[str, Any], open_runner: OpenRunner, say: Callable[[str], None], among: bool
) -> None:
    resumed = folder.begun
    if not resumed:
        folder.write("job.json", job.to_dict())
        folder.write(ENVIRONMENT, environment())
        folder.write(PLAN, plan(job))
        folder.write("key.json", key)
    for name, body in ((ENVIRONMENT, environment), (PLAN, lambda: plan(job))):
        if not (folder.path / name).is_file():  # damaged, and removed
            folder.write(name, body())
    folder.say("resumed" if resumed else "started", process=os.getpid(), place=job.place)
    say(f"{'resuming' if resumed else 'run'}: {folder.path}")
    before = find_before(folder) if among else None
    try:
        with ExitStack() as stack:
            held: list[Runner] = []

            def runner() -> Runner:
                if not held:
                    try:
                        held.append(stack.enter_context(open_runner()))
                    except (RuntimeError, TimeoutError) as error:  # a worker died while the cluster started
                        raise InfrastructureError(f"the cluster did not start: {error}") from error
                return held[0]

            _steps(job, Site(job, folder, runner, before, among), say)
        _finish(job, folder, key, before, say)
    except KeyboardInterrupt as stop:
        folder.say("interrupted", by=str(stop) or "SIGINT")
        say(f"stopped; resume with: distagg resume {folder.path}")
        raise
    except MemoryError as error:
        folder.say("failed", error="out of memory")
        raise InfrastructureError(
            f"out of memory; use smaller chunks or fewer workers, then: distagg resume {folder.path}"
        ) from error
    except (InfrastructureError, OSError) as error:
        folder.say("failed", error=str(error))
        say(f"resume with: distagg resume {folder.path}")
        raise
    except Exception as error:
        folder.say("failed", error=f"{type(error).__name__}: {error}")
        raise


def _steps(job: Job, site: Site, say: Callable[[str], None]) -> None:
    folder, before = site.folder, site.before
    output = folder.path / "output"
    output.mkdir(exist_ok=True)
    for remnant in output.glob(".*.staging-*"):  # of a dead driver: a live one would hold the lock
        shutil.rmtree(remnant) if remnant.is_dir() else remnant.unlink()
    for n, step in enumerate(job.steps, start=1):
        if _done_before(folder, step):
            folder.say("step there already", step=step.name)
            say(f"{n}/{len(job.steps)} {step.name}: done before")
        else:
            began = time.perf_counter()
            why = _reuse(job, step, site) if site.among else []
            if why is None:
                assert before is not None
                folder.say("step reused", step=step.name, run=before.name)
                say(f"{n}/{len(job.steps)} {step.name}: reused from {before.name}, same inputs")
                continue
            folder.say("step", step=step.name, do=step.do, **({"why": why} if why else {}))
            with collected_notes():  # which the steps keep in the folder
                STEPS[step.do](step, site)
            if folder.output(step).is_dir():  # a file was recorded before it was published
                record_directory(folder, step)
            spent = time.perf_counter() - began
            folder.say("step done", step=step.name, seconds=round(spent, 3))
            say(f"{n}/{len(job.steps)} {step.name}: {step.do} in {spent:.1f} s")
        tidy(folder, step)


def _reuse(job: Job, step: Step, site: Site) -> list[str] | None:
    """Reuse the step's output of the previous run: returns None if it was reused, else the reasons why not."""
    file = site.folder.step_key_file(step)
    file.parent.mkdir(exist_ok=True)
    write_whole(file, as_json(step_key(job, step, site.folder)))
    return reuse_step(step, site.folder, site.before)


def _done_before(folder: RunFolder, step: Step) -> bool:
    """Whether the step's output exists undamaged; deletes a damaged one, so that the step runs again."""
    if not folder.done(step):
        return False
    damaged = damage_of(folder, step)
    if damaged is None:
        return True
    folder.say("output damaged", step=step.name, file=damaged)
    output = folder.output(step)
    shutil.rmtree(output) if output.is_dir() else output.unlink()
    return False


def _finish(
    job: Job, folder: RunFolder, key: dict[str, Any], before: Before | None, say: Callable[[str], None]
) -> None:
    metrics = metrics_of(job, folder)
    folder.write("metrics.json", metrics)
    if before is not None:
        changes = changes_since(before.folder, folder, job)
        folder.write("changes.json", changes)
        say(summary(changes))
    write_run_report(job, folder)
    record_pages(folder)
    records = {step.name: recorded(folder, step) for step in job.steps}
    lost = [name for name, known in records.items() if known is None]
    if lost:
        raise InfrastructureError(f"the record of step {lost[0]} was lost during the run; run again to resume")
    files = [file for known in records.values() if known is not None for file in known["output"]]
    written = hashlib.sha256(as_json(metrics)).hexdigest()  # of what was written, not of what the disk has now
    files.append(entry_of(folder.path / "metrics.json", folder.path, written))
    notes = {step.name: folder.notes(step) for step in job.steps if folder.notes(step)}
    body = {"format": RUN_FORMAT, "schema": SCHEMA_VERSION, "name": job.name, "key": short(key), "notes": notes}
    folder.write(MANIFEST, {**body, "files": files})
    write_whole(folder.path / MARKER, b"")
    folder.say("finished")


def point_to(run: Path) -> None:
    """Let ``latest`` beside the run directory point to this run, atomically."""
    pointer, fresh = run.parent / "latest", run.parent / f".latest-{uuid.uuid4().hex[:8]}"
    if pointer.is_symlink() and os.readlink(pointer) == run.name:
        return
    for remnant in run.parent.glob(".latest-*"):
        remnant.unlink(missing_ok=True)
    os.symlink(run.name, fresh)
    os.replace(fresh, pointer)
    sync(run.parent)
