"""``--help`` teaches: every command has examples that parse, every argument its meaning."""

from __future__ import annotations

import os
import shlex

import click
import pytest

from distagg.cli.commands import COMMANDS, DISTAGG, Command
from distagg.cli.main import main

Capture = pytest.CaptureFixture[str]


def found(name: str) -> Command:
    command = DISTAGG.get_command(click.Context(DISTAGG), name)
    assert isinstance(command, Command)
    return command


def test_distagg_lists_every_command_within_80_columns(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.startswith("  ") and line.split()[0] in COMMANDS] == list(
        COMMANDS
    )


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_explains_everything(name: str, capsys: Capture) -> None:
    assert main([name, "--help"]) == 0
    told = capsys.readouterr().out
    command = found(name)
    for param in command.params:
        assert getattr(param, "help", None), f"{name}: {param.name}"
    assert command.examples
    for line in command.examples:
        assert line in told
        _, word, *rest = shlex.split(line)
        assert word == name
        assert command.make_context(name, rest).params


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rnak"], "did you mean 'rank'?"),
        (["rank", "rrf", "x", "--suport"], "--support"),
        (["rank"], "Missing argument"),
        ([], "Missing command"),
    ],
)
def test_a_slip_is_answered_with_the_way_out(words: list[str], said: str, capsys: Capture) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_shells_complete_commands_and_options(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("_DISTAGG_COMPLETE", "bash_complete")
    known = {
        "distagg ra": "plain,rank",
        "distagg rank --sup": "plain,--support",
        "distagg rank bor": "plain,borda",
        "distagg rank rrf bm": "file,bm",
        "distagg compare --qrels qr": "file,qr",
    }
    for line, wanted in known.items():
        monkeypatch.setitem(os.environ, "COMP_WORDS", line)
        monkeypatch.setitem(os.environ, "COMP_CWORD", str(len(line.split()) - 1))
        main([])
        assert wanted in capsys.readouterr().out.splitlines(), line
