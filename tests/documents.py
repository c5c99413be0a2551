"""Runs what a Markdown page tells people to type, in order, as they would.

A block without a language holds commands: lines that begin with ``distagg``, ``python`` or ``cd`` are run, anything
else there is for other machines. A ``python`` block is run as it stands. A ``text`` block shows output: the block
before it must print all its lines, in that order, however wide the columns are. ``...`` stands for any lines, or inside
a line for any text (a time, a path). ``sh`` and ``toml`` blocks are for other machines, ``py`` blocks show a file
of ``jobs/tools``, with which ``tests/test_tools.py`` compares them. No other language is allowed: so every shown output
is compared.
"""

from __future__ import annotations

import io
import os
import re
import runpy
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from distagg.cli.main import main

LANGUAGES = ("", "python", "text", "sh", "toml", "py")
_BLOCK = re.compile(r"^```([a-z]*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    return _BLOCK.findall(page)


def run_page(page: str) -> list[str]:
    """Run the blocks of a page in the present folder; gives the commands that were run."""
    commands: list[str] = []
    names: dict[str, object] = {"__name__": "__main__"}
    seen = io.StringIO()  # both streams in the order in which a terminal shows them
    for language, text in blocks(page):
        assert language in LANGUAGES, f"a block of language {language!r} is neither run nor compared:\n{text}"
        if language == "text":
            check_seen(text, seen.getvalue())
            continue
        seen = io.StringIO()
        with redirect_stdout(seen), redirect_stderr(seen):
            if language == "python":
                exec(compile(text, "<page>", "exec", dont_inherit=True), names)
            elif not language:
                told = [line for line in text.splitlines() if line.startswith(("distagg ", "python ", "cd "))]
                for command in told:
                    _type(command)
                commands += told
    return commands


def check_seen(shown: str, seen: str) -> None:
    """Every shown line is among the seen ones, in order."""
    lines = iter([" ".join(line.split()) for line in seen.splitlines()])
    for line in shown.splitlines():
        wanted = " ".join(line.split())
        if wanted and wanted != "...":
            pattern = re.compile(".*".join(map(re.escape, wanted.split("..."))))
            said = any(pattern.fullmatch(candidate) for candidate in lines)
            assert said, f"the page shows {wanted!r}, which was not said (in this place):\n{seen}"


def _type(command: str) -> None:
    program, *arguments = shlex.split(command, comments=True)
    if program == "cd":
        os.chdir(arguments[0])
    elif program == "distagg":
        assert main(arguments) == 0, command
    else:
        code = 0
        with mock.patch.object(sys, "argv", arguments):
            try:
                runpy.run_path(arguments[0], run_name="__main__")
            except SystemExit as end:
                code = end.code or 0
        assert code == 0, command


def links(page: str) -> list[str]:
    """Targets of a page's links and pictures that are files."""
    return [target for target in re.findall(r"\]\(([^)#]+)", page) if "://" not in target]


def exists(root: Path, page: Path, target: str) -> bool:
    return (page.parent / target).resolve().is_relative_to(root) and (page.parent / target).exists()
