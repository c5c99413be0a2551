"""Every error that distagg raises on purpose, with the exit code that the command line gives it.

A message says what was found, where, what was expected and what to do about it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

FOUND, MESSAGE = 200, 1000  # characters of what was found in a file, and of a message on one line
# What would move the cursor, end the line, or hide or reverse the text around it: control characters, halves of
# surrogate pairs, separators of lines, and marks of direction.
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@'\"]*:[^\s@'\"]+@")  # a password may have a slash
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def escaped(text: str, *, lines: bool = False) -> str:
    """The text with control characters as escapes, for terminals and logs; ``lines`` keeps the ends of lines.

    >>> print(escaped("a\\x1b[2J"))
    a\\x1b[2J
    """
    return _CONTROL.sub(lambda one: one[0] if lines and one[0] == "\n" else ascii(one[0])[1:-1], hidden(text))


def hidden(text: str) -> str:
    """The text with dots in place of user names and passwords in URLs.

    >>> hidden("no answer from http://me:secret/1@host:9000")
    'no answer from http://...@host:9000'
    """
    return _CREDENTIALS.sub("...@", text)


def one_line(text: str) -> str:
    """A message on one line, without control characters, cut at ``MESSAGE`` characters."""
    return escaped(cut(" ".join(line.strip() for line in text.splitlines()), MESSAGE))


def cut(text: str, most: int) -> str:
    """The text, or its beginning and dots.

    >>> cut("abcdefgh", 5), cut("abc", 5)
    ('abcde...', 'abc')
    """
    return text if len(text) <= most else f"{text[:most]}..."


class DistaggError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 4


class UsageError(DistaggError):
    """A wrong argument, name or configuration (exit 2)."""

    exit_code = 2


class InputError(DistaggError):
    """Bad data (exit 3): where, what was found, what was expected.

    >>> print(InputError("run.txt", line=7, found="rank 'x'", expected="a positive number"))
    run.txt:7: found rank 'x', expected a positive number
    """

    exit_code = 3

    def __init__(self, file: str, *, found: str, expected: str, line: int | None = None, remedy: str = "") -> None:
        where = f"{file}:{line}" if line is not None else str(file)
        found = cut(found, FOUND)
        super().__init__(f"{where}: found {found}, expected {expected}" + (f"; {remedy}" if remedy else ""))
        self.file, self.line = str(file), line
        self.found, self.expected, self.remedy = found, expected, remedy

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_input_error, (self.file, self.line, self.found, self.expected, self.remedy)


class InfrastructureError(DistaggError):
    """A failure of machines, not of data (exit 4): workers lost, disk full; running again may succeed."""

    exit_code = 4


class NotConvergedWarning(UserWarning):
    """A model stopped before its criterion was met; its answer is its last state (exit 1)."""


def _rebuild_input_error(file: str, line: int | None, found: str, expected: str, remedy: str) -> InputError:
    return InputError(file, line=line, found=found, expected=expected, remedy=remedy)


def install(extra: str) -> str:
    """How to install an extra of distagg, for messages.

    It holds for an editable clone, a wheel and a published package alike: pip finds distagg installed, and reads there
    what the extra needs.

    >>> install("lightgbm")
    "python -m pip install 'distagg[lightgbm]'"
    """
    return f"python -m pip install 'distagg[{extra}]'"


def unknown(what: str, name: str, choices: Iterable[str], aliases: Iterable[str] = ()) -> UsageError:
    """The error for a name that is not among ``choices``; it suggests the nearest one, or the nearest of ``aliases``.

    >>> print(unknown("model", "bordo", ["borda", "rrf"]))
    unknown model 'bordo'; did you mean 'borda'? known: borda, rrf
    """
    known = list(choices)
    near = difflib.get_close_matches(name, [*known, *aliases], n=1, cutoff=0.5)
    hint = f" did you mean '{near[0]}'?" if near else ""
    return UsageError(f"unknown {what} '{name}';{hint} known: {', '.join(known)}")
