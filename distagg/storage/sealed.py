"""JSON files that carry a checksum of their own content, so that damage to them is noticed when they are read.

The field ``checksum`` is the SHA-256 of all other fields. Files without it, of earlier versions, are read as they are.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from distagg.errors import InputError
from distagg.storage.paths import Place

CHECKSUM = "checksum"


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
    if CHECKSUM in body and body[CHECKSUM] != _sum(plain):
        raise InputError(
            str(file),
            found="a checksum that is not that of its content",
            expected="the file as it was written",
            remedy=remedy or "it was damaged or changed; restore it, or make it again",
        )
    return plain


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
