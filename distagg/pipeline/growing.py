"""Import steps whose dataset grows from run to run: files that are new since the run before are added to its dataset.

The run directory has the hashes of all files whose rows are in the dataset (``parts/STEP.json``), of earlier runs, too.
A file with one of these hashes is not read again, so a job may name all files that there have ever been, or those of
today alone. Nothing is lost: if the run before cannot be built upon and some of its files are gone, the step fails.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distagg.engine.importing import source_files
from distagg.errors import DistaggError, UsageError
from distagg.pipeline.folder import RunFolder, as_json, fingerprint
from distagg.pipeline.previous import Before, is_whole
from distagg.pipeline.spec import Step
from distagg.storage.atomic import write_whole
from distagg.storage.paths import place

FILES = "files"


@dataclass(frozen=True, slots=True)
class Addition:
    """What a step has to import: some files, in addition to a dataset or to nothing."""

    files: list[str]
    base: Path | None
    known: dict[str, str]  # of all files of the dataset afterwards: path by hash

    def write(self, folder: RunFolder, step: Step) -> None:
        """Note which files the dataset will have."""
        file = folder.recipe_file(step)
        file.parent.mkdir(exist_ok=True)
        write_whole(file, as_json({FILES: self.known}))


def addition(step: Step, before: Before | None) -> Addition:
    """The files that the dataset of the run before lacks; all files if there is none to build upon."""
    own = [str(file) for file in source_files(step.values["files"], step.values.get("columns"))]
    hashes = {fingerprint(place(file)): file for file in own}
    earlier = {} if before is None else _known(step, before.folder)
    if before is None or not earlier:
        return Addition(own, None, hashes)
    reason = _unusable(step, before)
    if reason is None:
        new = [file for sha256, file in hashes.items() if sha256 not in earlier]
        return Addition(new, before.folder.output(step), earlier | hashes)
    gone = [file for sha256, file in earlier.items() if sha256 not in hashes]
    if gone:
        raise UsageError(
            f"steps.{step.name}: {reason}, and its dataset has rows of {len(gone)} files that this job does not name, "
            f"such as {gone[0]}; name them all, or omit append to import only those that are named"
        )
    return Addition(own, None, hashes)


def _known(step: Step, folder: RunFolder) -> dict[str, str]:
    """The files of the step's dataset in an earlier run; none if it did not grow."""
    try:
        body = json.loads(folder.recipe_file(step).read_text(encoding="utf-8"))
        files: dict[str, str] = body[FILES]
        return {str(sha256): str(file) for sha256, file in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _unusable(step: Step, before: Before) -> str | None:
    """Why the dataset of the run before cannot be added to; None if it can."""

    def settings(values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name not in ("files", "qrels", "users", "items", "do")}

    try:
        then = settings(before.folder.read(f"keys/{step.name}.json")["step"])
        if then != settings(step.values):
            return f"other settings than in run {before.name}"
        if not is_whole(before.folder.output(step), before):
            return f"its output in run {before.name} is damaged"
    except (DistaggError, OSError, KeyError, TypeError, AttributeError):
        return f"its output in run {before.name} cannot be read"
    return None
