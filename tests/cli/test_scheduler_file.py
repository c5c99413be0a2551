"""A cluster that is named by its scheduler's file, and what ``doctor`` says of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from distagg.cli.main import main
from distagg.engine.dask import local_cluster


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of the scheduler of a cluster of two workers, as Dask writes it."""
    file = tmp_path_factory.mktemp("scheduler") / "scheduler.json"
    with local_cluster(2) as runner:
        runner.client.write_scheduler_file(str(file))
        yield file


@pytest.mark.cluster
def test_a_command_finds_the_cluster_by_its_file(written: Path, planted: Path, tmp_path: Path) -> None:
    rank = ["rank", "borda", str(planted), "-o"]
    assert main([*rank, str(tmp_path / "there.csv"), "--scheduler-file", str(written)]) == 0
    assert main([*rank, str(tmp_path / "here.csv")]) == 0
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


@pytest.mark.cluster
def test_doctor_shows_the_cluster(written: Path, planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doctor = ["doctor", "--json", "--scheduler-file", str(written), "--path"]
    assert main([*doctor, str(planted)]) == 0
    rows = {row["check"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["workers"]["found"] == "2 on 1 hosts, 2 threads"
    assert "distagg" in rows["versions"]["found"]
    assert rows["path"]["found"].endswith("2 of 2 workers")
    assert rows["clocks"]["state"] == "ok"
    assert "spills to" in rows["memory"]["found"]
    assert "MB/s" in rows["bandwidth"]["found"]
    assert " ms, the median" in rows["round"]["found"]
    assert main([*doctor, str(planted / "nowhere")]) == 4
    assert "cluster cannot run distagg: path" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (None, 4, "is the scheduler running?"),
        ("{", 3, "no address of a scheduler"),
        ("[1]", 3, "no address of a scheduler"),
        ('{"address": 7}', 3, "the address 7"),
        ('{"address": "tcp://10.0.0.1:8786"}', 2, "unencrypted address"),
    ],
)
def test_files_that_name_no_scheduler(
    text: str | None, code: int, said: str, planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scheduler.json"
    if text is not None:
        file.write_text(text)
    assert main(["rank", "rrf", str(planted), "--scheduler-file", str(file)]) == code
    assert said in capsys.readouterr().err


def test_one_cluster_only(planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ["--scheduler", "tcp://127.0.0.1:1", "--scheduler-file", os.devnull]
    assert main(["rank", "rrf", str(planted), *both]) == 2
    assert "expected one of them" in capsys.readouterr().err
    assert main(["doctor", "--path", str(tmp_path)]) == 2
