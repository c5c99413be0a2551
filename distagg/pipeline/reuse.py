"""Reuse steps of the previous run whose inputs did not change, and give the reasons for the others.

The key of a step contains everything that its output depends on: its fields, the hashes of its inputs, seed and code.
It is stored in the run directory. If the previous run has the same key for the step, its files are linked, each checked
by its hash. A step that changed runs from the beginning, training too, because weights depend on every query. Only
rankings are reused part by part (``distagg.engine.rank_incremental``). ``scale`` always runs again, because it measures
times.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distagg.dataset.manifest import MANIFEST
from distagg.engine.rank_incremental import link
from distagg.errors import DistaggError
from distagg.pipeline.folder import RunFolder
from distagg.pipeline.key import code_key, difference, fingerprint, plan_key, references
from distagg.pipeline.spec import Job, Step
from distagg.storage.atomic import MARKER, digest, staged_directory, staged_file
from distagg.storage.paths import is_found, place

NEVER_REUSED = ("scale",)


@dataclass(frozen=True, slots=True)
class Before:
    """The previous finished run, and the hashes of its files."""

    folder: RunFolder
    files: dict[str, str]  # path in the folder -> SHA-256

    @property
    def name(self) -> str:
        return self.folder.path.name

    @classmethod
    def open(cls, folder: RunFolder) -> Before | None:
        """The previous run, or None if it was deleted or is incomplete."""
        try:
            body = folder.read(MANIFEST)
            if folder.finished and folder.begun:
                return cls(folder, {file["path"]: file["sha256"] for file in body["files"]})
        except (DistaggError, KeyError, TypeError):
            pass
        return None


def find_before(folder: RunFolder) -> Before | None:
    """The run that ``latest`` pointed to when this run started; a resumed run keeps it."""
    if not (folder.path / "before.json").is_file():
        pointer = folder.path.parent / "latest"
        name = os.readlink(pointer) if pointer.is_symlink() else ""
        folder.write("before.json", {"run": name if Path(name).name == name and name != folder.path.name else ""})
    name = folder.read("before.json")["run"]
    return Before.open(RunFolder(folder.path.parent / name)) if name else None


def step_key(job: Job, step: Step, folder: RunFolder) -> dict[str, Any]:
    """Everything that a step's output depends on; its inputs must exist."""
    inputs = {}
    for reference in references(step):
        maker = job.step(reference)
        if maker is not None or is_found(reference):
            inputs[reference] = fingerprint(folder.output(maker) if maker is not None else place(reference))
    values = {"do": step.do, **step.values}
    return {"step": values, "inputs": inputs, "seed": job.seed, "plan": plan_key(), "code": code_key()}


def reuse_step(step: Step, folder: RunFolder, before: Before | None) -> list[str] | None:
    """Reuse a step's output of the previous run: returns None if it was reused, else the reasons why not.

    The reasons are empty if there is no previous run. The step's key must be in the folder already.
    """
    if before is None or step.do in NEVER_REUSED:
        return []
    if not before.folder.step_key_file(step).is_file():
        return ["the previous run had no such step"]
    lines = difference(before.folder.read(f"keys/{step.name}.json"), folder.read(f"keys/{step.name}.json"))
    if lines:
        return lines
    output = before.folder.output(step)
    try:
        if not _whole(output, before):
            return ["its output in the previous run is damaged"]
        notes = before.folder.notes(step)
        folder.keep_notes(step, notes)
        recipe = before.folder.recipe_file(step)
        if recipe.is_file():
            folder.recipe_file(step).parent.mkdir(exist_ok=True)
            folder.recipe_file(step).unlink(missing_ok=True)
            link(recipe, folder.recipe_file(step))
        _link_output(output, folder.output(step))
    except FileNotFoundError:  # deleted in the meantime
        return ["its output in the previous run was deleted"]
    return None


def _whole(output: Path, before: Before) -> bool:
    """Whether an output consists of the files in the run's manifest, each with its hash."""
    files = [output] if output.is_file() else [file for file in output.rglob("*") if file.is_file()]
    names = {str(file.relative_to(before.folder.path)) for file in files}
    inside = str(output.relative_to(before.folder.path))
    wanted = {path for path in before.files if path == inside or path.startswith(f"{inside}/")}
    return bool(names) and names == wanted and all(digest(before.folder.path / n) == before.files[n] for n in names)


def _link_output(output: Path, target: Path) -> None:
    if output.is_file():
        with staged_file(target) as staging:
            link(output, staging)
        return
    with staged_directory(target) as staging:
        for file in output.rglob("*"):
            if file.is_file() and file.name != MARKER:
                copy = staging / file.relative_to(output)
                copy.parent.mkdir(parents=True, exist_ok=True)
                link(file, copy)
