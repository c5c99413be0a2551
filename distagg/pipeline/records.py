"""What each step of a run has made, by hash: recorded when it is made, checked whenever it is relied on.

The record of a step, ``made/STEP.json``, lists every file of its output, and its notes, key and recipe. The record of a
file is written before the file is published, that of a directory afterwards: its manifest holds the hashes until then.
``pages.json`` lists the pages of a finished run, ``manifest.json`` its outputs and metrics; all three carry a checksum
of themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from distagg.dataset.manifest import VERIFIED
from distagg.errors import DistaggError, InputError
from distagg.pipeline.folder import MADE_AGAIN, RunFolder
from distagg.pipeline.spec import Step
from distagg.storage.atomic import MARKER, digest, write_whole
from distagg.storage.sealed import FILE_LISTS, MANIFEST, manifest_file, read_sealed, sealed

PAGES = "pages.json"
SEALED = ("job.json", "key.json", "environment.json", "before.json")  # files with a checksum of themselves
Entry = dict[str, Any]  # path in the run directory, bytes, sha256


def entry_of(file: Path, root: Path, sha256: str | None = None) -> Entry:
    return {"path": str(file.relative_to(root)), "bytes": file.stat().st_size, "sha256": sha256 or digest(file)}


def files_of(output: Path, root: Path) -> list[Entry]:
    """Every file of a published directory, with the hashes of its manifest where it has them."""
    known = {entry["path"]: entry["sha256"] for entry in _listed(output)}
    inside = sorted(file for file in output.rglob("*") if file.is_file() and file.name != VERIFIED)
    return [entry_of(file, root, known.get(str(file.relative_to(output)))) for file in inside]


def record(folder: RunFolder, step: Step, files: Sequence[Entry]) -> None:
    """Record the files of a step's output, with its notes, key and recipe."""
    beside = (folder.notes_file(step), folder.step_key_file(step), folder.recipe_file(step))
    own = [entry_of(file, folder.path) for file in beside if file.is_file()]
    target = _file(folder, step)
    target.parent.mkdir(exist_ok=True)
    write_whole(target, sealed({"output": list(files), "beside": own}))


def record_body(folder: RunFolder, step: Step, body: bytes) -> None:
    """Record the content of a step's output before it is published as one file."""
    path = str(folder.output(step).relative_to(folder.path))
    record(folder, step, [{"path": path, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}])


def record_directory(folder: RunFolder, step: Step) -> None:
    """Record the output of a step that is a directory, after it was published."""
    record(folder, step, files_of(folder.output(step), folder.path))


def recorded(folder: RunFolder, step: Step) -> dict[str, list[Entry]] | None:
    """The record of a step: its ``output`` and what is ``beside`` it; None if there is none, or a damaged one."""
    try:
        body = read_sealed(_file(folder, step))
        return {name: list(body[name]) for name in ("output", "beside")}
    except (DistaggError, KeyError, TypeError):
        return None


def damage_of(folder: RunFolder, step: Step) -> str | None:
    """The first file of a published step that is not what was recorded, or None. Records a directory that is whole."""
    output, known = folder.output(step), recorded(folder, step)
    if known is None:
        if output.is_file():  # its record is written before it
            lost = _file(folder, step) if _file(folder, step).is_file() else output
            return str(lost.relative_to(folder.path))
        inside = _first_unlike_manifest(output)
        if inside is not None:
            return str((output / inside).relative_to(folder.path))
        record_directory(folder, step)
        return None
    return next(unlike(folder.path, [*known["output"], *known["beside"]]), None)


def checked_output(folder: RunFolder, step: Step) -> Path:
    """The output of a published step; an InputError if it is not what was recorded.

    Of a directory (rankings or a model) only the manifest is checked: its readers check the other files by it. Runs of
    version 0.1 have no records.
    """
    output, known = folder.output(step), recorded(folder, step)
    if output.is_dir():
        read_sealed(manifest_file(output), MADE_AGAIN)
        return output
    lost = known is None and _file(folder, step).is_file()
    damaged = str(_file(folder, step)) if lost else next(unlike(folder.path, known["output"] if known else ()), None)
    if damaged is not None:
        raise InputError(
            str(folder.path / damaged),
            found="another content than that of its record",
            expected=f"the file as step {step.name} made it",
            remedy=f"make it again: distagg resume {folder.path}",
        )
    return output


def unlike(root: Path, entries: Iterable[Entry]) -> Iterator[str]:
    """The files that are missing or do not have their hash."""
    for entry in entries:
        file = root / entry["path"]
        if not file.is_file() or file.stat().st_size != entry["bytes"] or digest(file) != entry["sha256"]:
            yield str(entry["path"])


def record_pages(folder: RunFolder) -> None:
    """Record the pages of a run, its plan, and the changes since the run before it."""
    pages = sorted(file for name in ("report*.html", "changes.json", "plan.json") for file in folder.path.glob(name))
    folder.write(PAGES, {"files": [entry_of(page, folder.path) for page in pages]})


def damage_of_run(folder: RunFolder, steps: Sequence[Step]) -> list[str]:
    """Every damaged file of a run, as far as it has got; the log of events is not checked."""
    damaged = []
    for name in (*SEALED, *((MANIFEST, PAGES) if folder.finished else ())):
        try:
            body = folder.read(name) if (folder.path / name).is_file() or name in (MANIFEST, PAGES) else {}
            damaged += list(unlike(folder.path, body.get("files", ()))) if name in (MANIFEST, PAGES) else []
        except DistaggError:
            damaged.append(name)
    for step in steps:
        if folder.done(step) or folder.finished:
            first = damage_of(folder, step) if folder.done(step) else str(folder.output(step).relative_to(folder.path))
            damaged += [first] if first is not None else []
    return list(dict.fromkeys(damaged))


def _first_unlike_manifest(output: Path) -> str | None:
    """The first file of a directory that does not match the hashes in its manifest, or None."""
    if not (output / MARKER).is_file():
        return MARKER
    try:
        for entry in _listed(output):
            if digest(output / entry["path"]) != entry["sha256"]:
                return str(entry["path"])
    except (OSError, DistaggError, KeyError, TypeError):
        return manifest_file(output).name
    return None


def _listed(output: Path) -> list[Entry]:
    body = read_sealed(manifest_file(output))
    return [entry for name in FILE_LISTS for entry in body.get(name) or ()]


def _file(folder: RunFolder, step: Step) -> Path:
    return folder.path / "made" / f"{step.name}.json"
