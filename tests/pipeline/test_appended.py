"""A scheduled job on a dataset that grows: each run sees the version of its day."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.dataset.manifest import committed
from distagg.engine.read_rankings import read_rankings
from distagg.storage.paths import place
from tests.dataset.naive import read_back

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
        file.write_text(
            "".join(f"q{n}{q} Q0 d{(i * (7 + e)) % 13} {i + 1} {-i} t\n" for q in range(3) for i in range(5))
        )
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
    assert "in query 'q00' in the new files, which the dataset has" in capsys.readouterr().err


@pytest.mark.cluster
def test_append_on_workers(tmp_path: Path) -> None:
    for name, words in {"here": [], "there": ["--workers", "1"]}.items():
        assert main(["import", "trec", *day(tmp_path, 0), "-o", str(tmp_path / name)]) == 0
        assert main(["import", "trec", *day(tmp_path, 1), "-o", str(tmp_path / name), "--append", *words]) == 0
    versions = [committed(tmp_path / name, "a dataset") for name in ("here", "there")]
    files = [{file.name: file.read_bytes() for file in version.iterdir()} for version in versions]
    assert files[0] == files[1]


GROWING = """
name = "growing"
runs = "{folder}/runs"
[steps.data]
do = "import"
source = "trec"
files = {files}
append = true
[steps.ranked]
do = "rank"
model = "rrf"
dataset = "data"
chunk_entries = 1
"""


def test_a_job_adds_what_is_new_since_its_last_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, latest = tmp_path / "growing.toml", tmp_path / "runs" / "growing" / "latest"

    def run(files: list[str], *words: str) -> int:
        job.write_text(GROWING.format(folder=tmp_path, files=files))
        return main(["run", str(job), *words])

    def queries() -> int:
        return Dataset.open(latest / "output" / "data").manifest.queries

    days = [day(tmp_path, n) for n in range(4)]
    assert run(days[0]) == 0
    assert run([*days[0], *days[1]]) == 0  # all files so far
    assert queries() == 6
    assert run(days[2]) == 0  # those of the day alone
    assert queries() == 9
    events = [json.loads(line) for line in (latest / "events.jsonl").read_text().splitlines()]
    assert [event["files"] for event in events if event["event"] == "added"] == [2]
    assert [event["count"] for event in events if event["event"] == "parts reused"] == [2]
    assert run([*days[1], *days[2]]) == 0  # nothing new
    assert queries() == 9
    for n in range(3):
        assert main(["import", "trec", *days[n], "-o", str(tmp_path / "data"), *(["--append"] if n else [])]) == 0
    grown, other = Dataset.open(latest / "output" / "data"), Dataset.open(tmp_path / "data")
    assert read_back(grown) == read_back(other)
    assert grown.manifest == other.manifest
    assert main(["verify", str(latest)]) == 0
    capsys.readouterr()
    assert run(days[3], "steps.data.by=rank") == 2  # built anew, days 0 to 2 would be lost
    assert "other settings than in run" in capsys.readouterr().err
    assert run(days[3], "steps.data.by=rank", "steps.data.append=false") == 0
    assert queries() == 3
