"""Runs what a Markdown page tells people to type, in order, as they would.

A block without a language holds commands: lines that begin with ``distagg``, ``python`` or ``cd`` are run, anything
else there is for other machines. A ``python`` block is run as it stands. A ``text`` block shows what is seen: all its
lines (``...`` left out) must be said by the block before it, in that order, however wide the columns are.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from distagg.cli.main import main

_BLOCK = re.compile(r"^```([a-z]*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
Said = Callable[[], str]


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of every fenced block."""
    return _BLOCK.findall(page)


def run_page(page: str, said: Said) -> list[str]:
    """Run the blocks of a page in the present folder; gives the commands that were run.

    ``said`` gives what was printed since it was last called.
    """
    commands: list[str] = []
    names: dict[str, object] = {"__name__": "__main__"}
    seen = ""
    for language, text in blocks(page):
        if language == "text":
            check_seen(text, seen)
            continue
        said()
        if language == "python":
            exec(compile(text, "<page>", "exec"), names)
        elif not language:
            told = [line for line in text.splitlines() if line.startswith(("distagg ", "python ", "cd "))]
            for command in told:
                _type(command)
            commands += told
        seen = said()
    return commands


def check_seen(shown: str, seen: str) -> None:
    """Every shown line is among the seen ones, in order."""
    lines = iter([" ".join(line.split()) for line in seen.splitlines()])
    for line in shown.splitlines():
        wanted = " ".join(line.split())
        if wanted and wanted != "...":
            assert wanted in lines, f"the page shows {wanted!r}, which was not said (in this place):\n{seen}"


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
