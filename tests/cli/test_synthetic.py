"""distagg synthetic: planted data from one command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distagg.cli.main import main


def test_deep_lists_from_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--queries", "3", "--items", "300", "--experts", "5", "--depth", "40"]
    assert main(["synthetic", "deep", "-o", str(tmp_path / "deep"), *sizes, "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert (info["queries"], info["experts"], info["entries"]) == (3, 5, 600)
    assert main(["rank", "borda", str(tmp_path / "deep"), "-o", str(tmp_path / "ranked")]) == 0


def test_shapes_take_the_seed_and_refuse_what_they_lack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2):
        target = str(tmp_path / str(seed))
        assert main(["synthetic", "mq2008", "-o", target, "--queries", "5", "--seed", str(seed), "--json"]) == 0
    first, second = capsys.readouterr().out.split("}\n{")
    assert first != second
    assert main(["synthetic", "mq2007", "-o", str(tmp_path / "x"), "--depth", "5"]) == 2
    assert "--depth is the length of lists of the shape deep" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
