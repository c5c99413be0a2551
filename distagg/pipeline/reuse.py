"""What a run takes over from the one before it: whole steps whose inputs are the same, and the reasons for the others.

A step's key is all that its output depends on: its fields, the hashes of what it reads, seed, code. The key is kept in
the run directory, and a step with the same key in the run before gives its files (linked, each checked by its hash). A
step that changed is done again from its beginning, training too: weights depend on every query. Rankings alone are
taken over part by part (``distagg.engine.rank_incremental``). Times are never taken over: ``scale`` measures anew.
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

NEVER = ("scale",)


@dataclass(frozen=True, slots=True)
class Before:
    """The run before, which finished, and the hashes of its files."""

    folder: RunFolder
    files: dict[str, str]  # path in the folder -> SHA-256

    @property
    def name(self) -> str:
        return self.folder.path.name

    @classmethod
    def open(cls, folder: RunFolder) -> Before | None:
        """None where it is gone, or not whole."""
        try:
            body = folder.read(MANIFEST)
            if folder.finished and folder.begun:
                return cls(folder, {one["path"]: one["sha256"] for one in body["files"]})
        except (DistaggError, KeyError, TypeError):
            pass
        return None


def find_before(folder: RunFolder) -> Before | None:
    """The run that ``latest`` beside a run directory points to; the same one whenever the run is resumed."""
    if not (folder.path / "before.json").is_file():
        pointer = folder.path.parent / "latest"
        name = os.readlink(pointer) if pointer.is_symlink() else ""
        folder.write("before.json", {"run": name if Path(name).name == name and name != folder.path.name else ""})
    name = folder.read("before.json")["run"]
    return Before.open(RunFolder(folder.path.parent / name)) if name else None


def step_key(job: Job, step: Step, folder: RunFolder) -> dict[str, Any]:
    """All that a step's output depends on; its inputs must be there."""
    inputs = {}
    for reference in references(step):
        maker = job.step(reference)
        if maker is not None or is_found(reference):
            inputs[reference] = fingerprint(folder.output(maker) if maker is not None else place(reference))
    values = {"do": step.do, **step.values}
    return {"step": values, "inputs": inputs, "seed": job.seed, "plan": plan_key(), "code": code_key()}


def take_step(step: Step, folder: RunFolder, before: Before | None) -> list[str] | None:
    """Take a step's output over from the run before: None where that was done, else why not (nothing: no such run).

    The step's key must be in the folder already.
    """
    if before is None or step.do in NEVER:
        return []
    if not before.folder.step_key_file(step).is_file():
        return ["the run before had no such step"]
    lines = difference(before.folder.read(f"keys/{step.name}.json"), folder.read(f"keys/{step.name}.json"))
    if lines:
        return lines
    made = before.folder.output(step)
    try:
        if not _whole(made, before):
            return ["its output in the run before is damaged"]
        notes = before.folder.notes(step)
        folder.keep_notes(step, notes)
        recipe = before.folder.recipe_file(step)
        if recipe.is_file():
            folder.recipe_file(step).parent.mkdir(exist_ok=True)
            folder.recipe_file(step).unlink(missing_ok=True)
            link(recipe, folder.recipe_file(step))
        _link_output(made, folder.output(step))
    except FileNotFoundError:  # deleted meanwhile
        return ["its output in the run before is gone"]
    return None


def _whole(made: Path, before: Before) -> bool:
    """Whether an output's files are those that the run's manifest names, each with its hash."""
    files = [made] if made.is_file() else [file for file in made.rglob("*") if file.is_file()]
    names = {str(file.relative_to(before.folder.path)) for file in files}
    inside = str(made.relative_to(before.folder.path))
    wanted = {path for path in before.files if path == inside or path.startswith(f"{inside}/")}
    return bool(names) and names == wanted and all(digest(before.folder.path / n) == before.files[n] for n in names)


def _link_output(made: Path, target: Path) -> None:
    if made.is_file():
        with staged_file(target) as staging:
            link(made, staging)
        return
    with staged_directory(target) as staging:
        for file in made.rglob("*"):
            if file.is_file() and file.name != MARKER:
                place = staging / file.relative_to(made)
                place.parent.mkdir(parents=True, exist_ok=True)
                link(file, place)
