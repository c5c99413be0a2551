"""Datasets, rankings and models in an object store: the same bytes and figures as on a disk, whole or not there."""

from __future__ import annotations

import gc
import gzip
import hashlib
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from s3_server import BUCKET, WITHOUT_PROFILE, ask_for_credentials
from small_jobs import CHUNK, ranking_job, write_small

from distagg.cli.main import main
from distagg.dataset import Dataset, write_dataset
from distagg.engine.rank import rank_to
from distagg.engine.rank_resumable import rank_in_parts
from distagg.engine.read_rankings import read_rankings
from distagg.errors import InfrastructureError, InputError, UsageError
from distagg.models import model_named
from distagg.sources.synthetic import SyntheticSource
from distagg.storage.atomic import staged_directory, staged_file
from distagg.storage.paths import CONNECT_SECONDS, SILENT_SECONDS, Place, Sink, Store, place
from distagg.storage.sealed import committed, manifest_file


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of a dozen blocks on this disk."""
    return write_small(tmp_path_factory.mktemp("here") / "data")


@pytest.fixture(scope="module")
def there(address: str) -> str:
    """The same in the store."""
    target = f"{BUCKET}/shared/data"
    write_dataset(SyntheticSource(queries=120, shape="mq2008", seed=3), target, block_entries=CHUNK)
    return target


def bytes_of(target: str | Path) -> dict[str, str]:
    """Name and hash of every file of a committed directory, by its manifest and by its bytes."""
    folder = committed(place(target), "a result")
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


def parts_of(target: str | Path) -> list[str]:
    """The hashes of the parts of rankings, in order, after a look at their bytes."""
    folder = committed(place(target), "rankings")
    files = json.loads(manifest_file(folder).read_text(encoding="utf-8"))["files"]
    for file in files:
        assert hashlib.sha256((folder / file["path"]).read_bytes()).hexdigest() == file["sha256"]
    return [file["sha256"] for file in files]


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """What a command prints (with its error messages when it should fail)."""
    capsys.readouterr()
    assert main(list(arguments)) == code
    shown = capsys.readouterr()
    return shown.err if code else shown.out


def test_a_dataset_has_the_same_bytes(here: Path, there: str) -> None:
    mine, theirs = bytes_of(here), bytes_of(there)
    assert mine.pop("_SUCCESS")  # a store's marker is beside the attempt
    assert mine == theirs
    one, other = Dataset.open(here), Dataset.open(there)
    assert one.manifest == other.manifest
    for a, b in zip(one.plan(CHUNK), other.plan(CHUNK), strict=True):
        assert a.load().item_ids == b.load().item_ids
        assert a.load().entry_rank.tobytes() == b.load().entry_rank.tobytes()


def test_appending_gives_what_it_gives_on_a_disk(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """New queries, and a new expert of known ones; a dataset in a store has its staging folder inside it."""
    for name, queries in {"a.run": range(6), "b.run": range(4, 9)}.items():
        lines = (f"q{q} Q0 d{(i * 7 + q) % 13} {i + 1} {-i} t\n" for q in queries for i in range(5))
        (tmp_path / name).write_text("".join(lines))
    for base in (str(tmp_path), store):
        said(capsys, "import", "trec", str(tmp_path / "a.run"), "-o", f"{base}/grown")
        said(capsys, "import", "trec", str(tmp_path / "b.run"), "-o", f"{base}/grown", "--append")
        said(capsys, "compact", f"{base}/grown")
    assert bytes_of(tmp_path / "grown") == bytes_of(f"{store}/grown")
    assert Dataset.open(f"{store}/grown").manifest.lists == 11
    attempts = [path for path in place(f"{store}/grown").iterdir() if path.is_dir()]
    assert len(attempts) == 3  # the versions; nothing is left of the staging folder


def test_every_command_gives_what_it_gives_on_a_disk(
    here: Path, there: str, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for base, data in ((str(tmp_path), str(here)), (store, there)):
        run = [said(capsys, "info", data, "--json")]
        run.append(said(capsys, "fit", "bestinput", data, "-o", f"{base}/model", "--json"))
        said(capsys, "rank", f"{base}/model", data, "-o", f"{base}/fitted")
        said(capsys, "rank", "rrf", data, "-o", f"{base}/ranked")
        said(capsys, "rank", "rrf", data, "-o", f"{base}/ranked.csv", "--report", f"{base}/page.html")
        said(capsys, "rank", "rrf", data, "-o", f"{base}/ranked.run")
        run += [said(capsys, "evaluate", f"{base}/{n}", data, "--json") for n in ("fitted", "ranked.csv", "ranked.run")]
        said(capsys, "evaluate", f"{base}/ranked", data, "-o", f"{base}/figures.json")
        run.append(place(f"{base}/figures.json").read_text(encoding="utf-8"))
        assert "exists already" in said(
            capsys, "evaluate", f"{base}/ranked", data, "-o", f"{base}/figures.json", code=2
        )
        compared = json.loads(said(capsys, "compare", data, "--models", "rrf", "--json"))
        run += [json.dumps([compared["means"], compared["results"]]), *parts_of(f"{base}/ranked")]
        run += [place(f"{base}/ranked.{ending}").read_text(encoding="utf-8") for ending in ("csv", "run")]
        said(capsys, "expand", data, "-o", f"{base}/more", "--experts", "2")
        run.append(said(capsys, "info", f"{base}/more", "--json"))
        assert "<html" in place(f"{base}/page.html").read_text(encoding="utf-8")
        assert "exists already" in said(capsys, "rank", "rrf", data, "-o", f"{base}/ranked", code=2)
        assert "exists already" in said(capsys, "rank", "rrf", data, "-o", f"{base}/ranked.csv", code=2)
        found.append(run)
    for mine, theirs in zip(*found, strict=True):
        assert mine == theirs
    left = sorted(one.name for one in place(store).iterdir())
    assert sorted(left) == [
        "figures.json",
        "fitted",
        "model",
        "more",
        "page.html",
        "ranked",
        "ranked.csv",
        "ranked.run",
    ]


def test_an_import_has_the_same_bytes(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    votes = small_source(tmp_path)
    for target in (str(tmp_path / "data"), f"{store}/data"):
        said(capsys, "import", "rankings", str(votes), "-o", target)
    mine = bytes_of(tmp_path / "data")
    del mine["_SUCCESS"]
    assert mine == bytes_of(f"{store}/data")
    assert said(capsys, "info", f"file://{tmp_path}/data") == said(capsys, "info", f"{store}/data")
    text = said(capsys, "import", "rankings", f"{store}/votes.csv", "-o", str(tmp_path / "other"), code=3)
    assert f"{store}/votes.csv: found nothing there" in text


def test_fits_lie_apart_from_the_ranking(store: str) -> None:
    battles = Dataset.from_arrow(pa.table({"winner": ["a", "b", "c"], "loser": ["b", "c", "a"]}))
    rank_to(place(f"{store}/out"), model_named("bradley_terry"), {}, battles)
    folder = committed(place(f"{store}/out"), "rankings")
    assert [name.split(".")[0] for name in sorted(folder.sizes())] == ["_fits", "_manifest", "part-00000"]
    assert len(read_rankings(place(f"{store}/out"))) == 3


@pytest.mark.parametrize("name", ["r.run", "r.run.gz", "r.csv", "r.csv.gz"])
def test_files_of_rankings_are_read(name: str, store: str) -> None:
    body = b"q Q0 x 1 0.5 t\n" if "run" in name else b"query,item,rank,score\nq,x,1,0.5\n"
    place(f"{store}/{name}").write_bytes(gzip.compress(body) if name.endswith(".gz") else body)
    assert read_rankings(place(f"{store}/{name}")).select(["query", "item", "score"]).to_pylist() == [
        {"query": "q", "item": "x", "score": 0.5}
    ]


def small_source(folder: Path) -> Path:
    rows = [f"q{q},e{e},i{(e * 7 + r * 3) % 11},{r}" for q in range(9) for e in range(4) for r in range(1, 9)]
    file = folder / "votes.csv"
    file.write_text("query,expert,item,rank\n" + "\n".join(rows) + "\n")
    return file


@pytest.mark.cluster
def test_workers_write_their_parts_themselves(here: Path, there: str, store: str, tmp_path: Path) -> None:
    from distributed import Client

    from distagg.engine.dask import DaskRunner

    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as client:
        rank(f"{store}/two", there, runner=DaskRunner(client))
    rank(f"{store}/one", there)
    rank(tmp_path / "local", here)
    assert parts_of(f"{store}/two") == parts_of(f"{store}/one") == parts_of(tmp_path / "local")
    assert len(parts_of(f"{store}/two")) > 3


def rank(target: str | Path, data: str | Path, **more: Any) -> None:
    """Rank by rrf in many parts."""
    staging = place(f"{target}.staging")
    rank_in_parts(place(target), staging, model_named("rrf"), {}, Dataset.open(data), chunk_entries=3 * CHUNK, **more)
    assert not staging.exists()


class StoppedError(BaseException):
    """The driver dies."""


def test_finished_parts_are_taken_up_again(there: str, store: str) -> None:
    events: list[tuple[str, dict[str, Any]]] = []

    def say(event: str, **about: Any) -> None:
        events.append((event, about))
        if event == "part" and about["number"] == 2:
            raise StoppedError

    with pytest.raises(StoppedError):
        rank(f"{store}/out", there, say=say)
    with pytest.raises(InputError, match="nothing there"):
        read_rankings(place(f"{store}/out"))
    damaged = place(f"{store}/out.staging").glob("part-00001.*.parquet")[0]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    total = events[0][1]["total"]
    events.clear()
    rank(f"{store}/out", there, say=lambda event, **about: events.append((event, about)))
    assert ("part damaged", {"file": damaged.name}) in events
    assert ("parts", {"total": total, "taken": 2, "missing": total - 2}) in events
    rank(f"{store}/undisturbed", there)
    assert parts_of(f"{store}/out") == parts_of(f"{store}/undisturbed")


KILLED = """
import os, signal, sys
from distagg.storage.paths import Sink, Store

def dying(write, left):
    def wrapped(self, body):
        left.pop()
        write(self, body if left else body[: len(body) // 2])
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
    return wrapped

kind, count, *arguments = sys.argv[1:]
owner = {"Sink": (Sink, "write"), "Store": (Store, "write_bytes")}[kind]
setattr(*owner, dying(getattr(*owner), [None] * int(count)))
from distagg.cli.main import main
main(arguments)
"""


@pytest.mark.parametrize(("kind", "count"), [("Sink", 3), ("Store", 1)])
def test_a_kill_leaves_nothing_to_read_and_a_rerun_succeeds(
    kind: str, count: int, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed while the third piece of a part is on its way, or when half of the manifest is written."""
    arguments = ["import", "rankings", str(small_source(tmp_path)), "-o", f"{store}/data"]
    killed = subprocess.run([sys.executable, "-c", KILLED, kind, str(count), *arguments], check=False)
    assert killed.returncode == -signal.SIGKILL
    text = said(capsys, "info", f"{store}/data", code=3)
    assert "nothing there" in text if kind == "Sink" else "no _SUCCESS marker" in text
    said(capsys, *arguments)
    assert Dataset.open(f"{store}/data").manifest.queries == 9


def test_a_driver_that_dies_before_the_marker(
    there: str, store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything is written but the marker: refused, left alone, and made again beside it."""
    plain = Store.write_bytes

    def dies(self: Store, body: bytes) -> None:
        if self.name == "_SUCCESS":
            raise StoppedError
        plain(self, body)

    with monkeypatch.context() as patch, pytest.raises(StoppedError):
        patch.setattr(Store, "write_bytes", dies)
        rank_to(place(f"{store}/out"), model_named("rrf"), {}, Dataset.open(there))
    (left,) = place(f"{store}/out").iterdir()
    assert left.name.startswith("attempt-")
    assert "no _SUCCESS marker" in said(capsys, "evaluate", f"{store}/out", there, code=3)
    said(capsys, "rank", "rrf", there, "-o", f"{store}/out")
    assert len(place(f"{store}/out").iterdir()) == 3
    assert left.name not in str(committed(place(f"{store}/out"), "rankings"))
    said(capsys, "evaluate", f"{store}/out", there)


def test_what_fails_is_removed(store: str) -> None:
    with pytest.raises(StoppedError), staged_directory(place(f"{store}/folder")) as folder:
        (folder / "a").write_bytes(b"1")
        raise StoppedError
    with pytest.raises(StoppedError), staged_file(place(f"{store}/file")) as file, file.open("wb") as stream:
        stream.write(b"half of it")
        raise StoppedError
    assert all(not (place(store) / name).exists() for name in ("file", "folder"))
    assert [one.iterdir() for one in place(store).iterdir() if not one.name.startswith("attempt")] in ([], [[]])


def test_a_broken_import_leaves_nothing(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even what is written when a half-written object is given up."""
    plain = Sink.write
    calls = []

    def fails(self: Sink, body: bytes) -> int:
        calls.append(len(body))
        if len(calls) == 4:
            raise StoppedError
        return plain(self, body)

    monkeypatch.setattr(Sink, "write", fails)
    with pytest.raises(StoppedError):
        write_dataset(SyntheticSource(queries=9, shape="mq2008", seed=3), f"{store}/data")
    gc.collect()
    assert not place(f"{store}/data").exists()


def test_a_copy_made_by_another_tool_is_read(here: Path, there: str, store: str, tmp_path: Path) -> None:
    """Files copied up from a disk, and down from the store, marker and all."""
    for file in here.iterdir():
        (place(f"{store}/up") / file.name).write_bytes(file.read_bytes())
    assert Dataset.open(f"{store}/up").manifest == Dataset.open(here).manifest
    attempt = committed(place(there), "a dataset")
    (tmp_path / "down" / attempt.name).mkdir(parents=True)
    (tmp_path / "down" / "_SUCCESS").write_bytes((place(there) / "_SUCCESS").read_bytes())
    for one in attempt.iterdir():
        (tmp_path / "down" / attempt.name / one.name).write_bytes(one.read_bytes())
    assert Dataset.open(tmp_path / "down").plan()[0].load().n_entries > 0
    (tmp_path / "down" / "_SUCCESS").write_text("../elsewhere")
    with pytest.raises(InputError, match="name of an attempt"):
        Dataset.open(tmp_path / "down")


def test_damage_is_told_from_trouble(there: str, store: str) -> None:
    source, target = committed(place(there), "a dataset"), place(f"{store}/bad")
    for one in source.iterdir():
        (target / one.name).write_bytes(one.read_bytes())
    (target / "_SUCCESS").write_bytes(b"")
    part = target / "lists-00000.parquet"
    body = part.read_bytes()
    part.write_bytes(body[:-100] + b"x" * 100)
    with pytest.raises(InputError, match="damaged"):
        Dataset.open(target).plan()[0].load()
    part.write_bytes(body[:-1])
    with pytest.raises(InputError, match="bytes that the manifest names"):
        Dataset.open(target)


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        ("s3://no-such-bucket/data", 3, ["no such bucket", "create it first"]),
        (f"{BUCKET}/nothing", 3, ["nothing there", "made by 'distagg "]),
        (f"{BUCKET}/data?endpoint_override=127.0.0.1:1&scheme=http", 4, ["no answer from 127.0.0.1:1", "run again"]),
        (f"{BUCKET}/data?endpiont=x", 2, ["unknown option 'endpiont'", "endpoint_override"]),
        ("s4://bucket/data", 2, ["s4://", "expected a path, s3://"]),
        ("s3:///data", 2, ["no bucket"]),
    ],
)
def test_errors_say_what_to_do(
    data: str, code: int, words: list[str], there: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["info", data], ["evaluate", data, there]):
        text = said(capsys, *arguments, code=code)
        assert all(word in text for word in words), text
    if "nothing" not in data:
        text = said(capsys, "fit", "bestinput", there, "-o", data, code=code)
        assert words[0] in text


def test_wrong_credentials(address: str, there: str, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    ask_for_credentials(address, wanted=True)
    try:
        for arguments in (["info", there], ["fit", "bestinput", there, "-o", f"{store}/model"]):
            text = said(capsys, *arguments, code=4)
            assert "access denied" in text
            assert "AWS_ACCESS_KEY_ID" in text
        with pytest.raises(InfrastructureError, match="access denied"):
            (place(store) / "x").write_bytes(b"1")
    finally:
        ask_for_credentials(address, wanted=False)
    said(capsys, "info", there)


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distagg.storage.paths.SILENT_SECONDS", 1.0)
    monkeypatch.setattr("distagg.storage.paths.TRIES", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for name, value in {
            **WITHOUT_PROFILE,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
        }.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(InfrastructureError, match="no answer from http"):
            Dataset.open(f"{BUCKET}/data")


def test_a_job_reads_from_the_store_and_runs_on_a_disk(
    here: Path, there: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for number, data in enumerate((here, there)):
        (tmp_path / f"{number}.json").write_text(json.dumps(ranking_job(data)))  # type: ignore[arg-type]
        said(capsys, "run", str(tmp_path / f"{number}.json"), "-o", str(tmp_path / str(number)))
        outputs.append(bytes_of(tmp_path / str(number) / "output" / "ranked"))
    assert outputs[0] == outputs[1]
    key = json.loads((tmp_path / "1" / "key.json").read_text())
    assert there in key["inputs"]
    text = said(capsys, "run", str(tmp_path / "1.json"), "-o", f"{BUCKET}/run", code=2)
    assert "must be on a local disk" in text
    text = said(capsys, "run", str(tmp_path / "1.json"), f"runs={BUCKET}/runs", code=2)
    assert "runs: found the URL" in text
    assert "no such bucket" in said(
        capsys, "run", str(tmp_path / "1.json"), "steps.ranked.dataset=s3://no-such-bucket/x", code=2
    )


def test_the_page_is_right(address: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands run as they stand, with another bucket and without processes; its messages are ours."""
    page = (Path(__file__).parents[2] / "cluster" / "stores" / "README.md").read_text()
    block = page.split("```\n")[1]
    commands = [line.replace("s3://bucket", store) for line in block.splitlines() if line.startswith("distagg ")]
    assert len(commands) == 6
    monkeypatch.chdir(tmp_path)
    lines = [
        f"{r % 3} qid:{q} 1:{r + 1} 2:{(r * 5 + q) % 7 + 1} #docid = d{q}-{r}\n" for q in range(6) for r in range(7)
    ]
    Path("A1.txt").write_text("".join(lines))
    for line in commands:
        assert main(line.replace(" --workers 2", "").split()[1:]) == 0, line
    for message in re.findall(r"^\| `([^`]+)` \| [34] \|", page, flags=re.MULTILINE):
        assert message in Path(__file__).read_text(), message
    assert f"{CONNECT_SECONDS:.0f} s to connect, {SILENT_SECONDS:.0f} s without" in page


def test_local_places_are_paths(tmp_path: Path) -> None:
    for text in ("a/b", str(tmp_path), "a:b", "/x//y"):
        assert place(text) == Path(text)
    assert place(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    with pytest.raises(UsageError, match="the host"):
        place("file://elsewhere/a")
    found: Place = place("s3://bucket/a/b.csv")
    assert (found.name, found.suffix, str(found.parent)) == ("b.csv", ".csv", "s3://bucket/a")
