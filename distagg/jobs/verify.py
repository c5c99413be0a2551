"""Whether what a step published is still what it published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from distagg.dataset.manifest import MARKER, manifest_file
from distagg.dataset.whole import digest


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
