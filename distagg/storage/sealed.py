"""JSON files that carry a checksum of their own content, so that damage to them is noticed when they are read.

The manifest of a committed directory is such a file; it names the other files of the directory.

The field ``checksum`` is the SHA-256 of all other fields. Files without it, of earlier versions, are read as they are.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import PurePosixPath
from typing import Any

from distagg.errors import InputError
from distagg.storage.atomic import ATTEMPT, MARKER
from distagg.storage.paths import P, Place
from distagg.types import SCHEMA_VERSION

CHECKSUM = "checksum"
MANIFEST = "manifest.json"
HIDDEN_MANIFEST = "_manifest.json"  # of rankings: readers of Parquet directories skip it
FILE_LISTS = ("files", "fits", "tables")  # lists of files in manifests


def sealed(body: dict[str, Any], *, sort: bool = True) -> bytes:
    """A body as JSON with its checksum.

    >>> check_seal(json.loads(sealed({"b": 1.5, "a": [1, None]})), "a.json")
    {'a': [1, None], 'b': 1.5}
    """
    plain = json.loads(json.dumps(body, sort_keys=sort))
    plain.pop(CHECKSUM, None)
    return (json.dumps({**plain, CHECKSUM: _sum(plain)}, indent=1, sort_keys=sort) + "\n").encode()


def check_seal(body: dict[str, Any], file: str | Place, remedy: str = "") -> dict[str, Any]:
    """A body as read, without its checksum; an InputError if this is not the checksum of its content."""
    plain = {name: value for name, value in body.items() if name != CHECKSUM}
    if (CHECKSUM in body and body[CHECKSUM] != _sum(plain)) or (CHECKSUM not in body and _renamed_seal(body)):
        raise InputError(
            str(file),
            found="a checksum that is not that of its content",
            expected="the file as it was written",
            remedy=remedy or "it was damaged or changed; restore it, or make it again",
        )
    return plain


def _renamed_seal(body: dict[str, Any]) -> bool:
    """Whether a field is the checksum of all others under another name: its name was damaged."""
    return any(
        isinstance(value, str)
        and re.fullmatch("[0-9a-f]{64}", value) is not None
        and value == _sum({other: content for other, content in body.items() if other != name})
        for name, value in body.items()
    )


def read_sealed(file: Place, remedy: str = "") -> dict[str, Any]:
    """The body of a JSON file, checked; an InputError if it cannot be read or is no JSON object."""
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(str(file), found=f"an unreadable file ({error})", expected="JSON", remedy=remedy) from error
    if not isinstance(body, dict):
        raise InputError(str(file), found=f"JSON of type {type(body).__name__}", expected="an object", remedy=remedy)
    return check_seal(body, file, remedy)


def _sum(plain: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, separators=(",", ":")).encode()).hexdigest()


def committed(directory: P, what: str) -> P:
    """The folder of a committed directory's files: the directory itself, or the attempt named by its marker."""
    if not directory.is_dir():
        found = "a file" if directory.exists() else "nothing there"
        raise InputError(str(directory), found=found, expected=what)
    marker: Place = directory / MARKER
    if not marker.is_file():
        raise InputError(
            str(directory),
            found=f"no {MARKER} marker",
            expected=what,
            remedy="it was never completed; delete it and run again",
        )
    attempt = marker.read_text(encoding="utf-8", errors="replace").strip()
    if not attempt:
        return directory
    if not ATTEMPT.fullmatch(attempt):
        raise InputError(str(marker), found=repr(attempt[:40]), expected="nothing, or the name of an attempt")
    return directory / attempt  # type: ignore[return-value]


def read_committed_json(directory: P, fmt: str, what: str, version: int = SCHEMA_VERSION) -> tuple[P, dict[str, Any]]:
    """The folder of a committed directory's files, and its manifest."""
    directory = committed(directory, what)
    return directory, read_manifest_json(directory, fmt, what, version)


def read_manifest_json(directory: Place, fmt: str, what: str, version: int = SCHEMA_VERSION) -> dict[str, Any]:
    """The manifest beside some files, with format, version and checksum checked."""
    file = manifest_file(directory)
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(str(file), found=f"an unreadable manifest ({error})", expected="JSON") from error
    if not isinstance(body, dict) or body.get("format") != fmt:
        actual = body.get("format") if isinstance(body, dict) else type(body).__name__
        raise InputError(str(file), found=f"format {actual!r}", expected=f"'{fmt}', {what}")
    if type(body.get("schema")) is not int or body["schema"] > version:
        raise InputError(
            str(file),
            found=f"schema version {body.get('schema')}",
            expected=f"at most {version}",
            remedy="a newer distagg wrote it; upgrade this one",
        )
    body = check_seal(body, file)
    for entry in listed(body, file):
        if not _is_inside(entry["path"]) or not re.fullmatch("[0-9a-f]{64}", entry["sha256"]):
            raise InputError(str(file), found=f"the file {entry['path']!r}", expected="a file of this directory")
    return body


def manifest_file(directory: P) -> P:
    """The path of a committed directory's manifest."""
    hidden = directory / HIDDEN_MANIFEST
    return hidden if hidden.is_file() else directory / MANIFEST  # type: ignore[return-value]


def listed(body: dict[str, Any], file: Place) -> list[dict[str, Any]]:
    """The files that a manifest names, each with path, bytes and SHA-256."""
    lists = [body[key] for key in FILE_LISTS if key in body]
    entries = [entry for entries in lists if isinstance(entries, list) for entry in entries]
    if (
        "files" not in body
        or not all(isinstance(entries, list) for entries in lists)
        or not all(
            isinstance(entry, dict)
            and [type(entry.get(name)) for name in ("path", "bytes", "sha256")] == [str, int, str]
            for entry in entries
        )
    ):
        raise InputError(str(file), found="no list of files", expected="path, bytes and sha256 of each file")
    return entries


def _is_inside(path: str) -> bool:
    """Whether a path in a manifest stays in the manifest's directory."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts
