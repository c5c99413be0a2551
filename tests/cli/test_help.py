"""``--help`` teaches: every command has examples that parse, every argument its meaning."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

import pytest

from distagg.cli.parser import build_parser
from distagg.cli.teach import EXAMPLES


def parsers(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, one in action.choices.items():
                yield f"{name} {word}".strip(), one
                yield from parsers(one, f"{name} {word}".strip())


ALL = dict(parsers(build_parser()))


def test_every_command_has_examples() -> None:
    assert set(EXAMPLES) == set(ALL)


@pytest.mark.parametrize("name", list(ALL))
def test_help_explains_everything(name: str) -> None:
    told = ALL[name].format_help()
    for action in ALL[name]._actions:
        assert action.help or isinstance(action, argparse._SubParsersAction), f"{name}: {action.dest}"
    for line in EXAMPLES[name]:
        assert line in told
        if "--help" not in line:
            found = build_parser().parse_args(shlex.split(line)[1:])
            assert name.split()[0] == found.command
            assert callable(found.run)
