"""A scheduled job on a dataset that grows: each run sees the version of its day."""

from __future__ import annotations

from pathlib import Path

import pytest

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine.read_rankings import read_rankings
from distagg.storage.paths import place

JOB = """
name = "nightly"
runs = "{folder}/runs"
[steps.ranked]
do = "rank"
model = "rrf"
dataset = "{folder}/data"
"""


def day(folder: Path, n: int) -> list[str]:
    files = [folder / f"day{n}" / f"sys{e}.run" for e in range(2)]
    for e, file in enumerate(files):
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"q{n}{q} Q0 d{(i * (7 + e)) % 13} {i} {-i} t\n" for q in range(3) for i in range(5)))
    return [str(file) for file in files]


def test_import_append_run_compact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, job = str(tmp_path / "data"), tmp_path / "nightly.toml"
    job.write_text(JOB.format(folder=tmp_path))
    ranked = []
    for n in range(3):
        assert main(["import", "trec", *day(tmp_path, n), "-o", data, *(["--append"] if n else [])]) == 0
        assert main(["run", str(job)]) == 0
        ranked.append(read_rankings(place(str(tmp_path / "runs" / "nightly" / "latest" / "output" / "ranked"))))
    assert [len(set(table["query"].to_pylist())) for table in ranked] == [3, 6, 9]
    every = [file for n in range(3) for file in day(tmp_path, n)]
    assert len(every) == 6
    assert ranked[2].slice(0, len(ranked[1])).equals(ranked[1])
    capsys.readouterr()
    assert main(["verify", data]) == 0
    assert main(["compact", data, "--remove-old"]) == 0
    assert "3 blocks before, 1 now" in capsys.readouterr().err
    assert main(["verify", data]) == 0
    assert Dataset.open(data).manifest.queries == 9
    assert main(["run", str(job)]) == 0
    latest = read_rankings(place(str(tmp_path / "runs" / "nightly" / "latest" / "output" / "ranked")))
    assert latest.equals(ranked[2])


def test_what_cannot_be_appended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(tmp_path / "data")
    assert main(["import", "trec", *day(tmp_path, 0), "-o", data, "--append"]) == 3
    assert main(["import", "trec", *day(tmp_path, 0), "-o", data]) == 0
    assert main(["import", "trec", *day(tmp_path, 0), "-o", data, "--append"]) == 3
    assert "query 'q00' in the new files, which the dataset has" in capsys.readouterr().err
    assert main(["import", "trec", *day(tmp_path, 1), "-o", data, "--append", "--workers", "1"]) == 2
