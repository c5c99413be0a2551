"""Sources at URLs: the same bytes as from a disk, and no credential anywhere."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3_server import ask_for_credentials

from distagg.dataset import Dataset, write_dataset
from distagg.engine.import_parallel import import_in_pieces
from distagg.engine.importing import import_dataset, source_files
from distagg.engine.runner import InlineRunner
from distagg.errors import DistaggError, InputError, UsageError
from distagg.sources import source
from distagg.sources.trec import TrecSource
from distagg.storage.paths import place
from distagg.storage.sealed import committed

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes() for file in committed(folder, "a dataset").iterdir() if file.name != "_SUCCESS"
    }


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Runs of two systems, judgements, and lists in Parquet."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for e in range(2):
        lines = (f"q{q} Q0 d{(i * (7 + e) + q) % 31} {i} {-i} t\n" for q in range(12) for i in range(9))
        (folder / f"sys{e}.run").write_text("".join(lines))
    (folder / "qrels.txt").write_text("".join(f"q{q} 0 d{i} {i % 3}\n" for q in range(12) for i in range(5)))
    table = pa.table({"query": ["a"] * 6, "expert": list("xxxyyy"), "item": list("123321"), "rank": [1, 2, 3] * 2})
    pq.write_table(table, folder / "lists.parquet", row_group_size=2)
    return folder


@pytest.fixture
def there(runs: Path, store: str) -> str:
    """The same in the store."""
    for file in runs.iterdir():
        (place(f"{store}/sources") / file.name).write_bytes(file.read_bytes())
    return f"{store}/sources"


def test_the_same_bytes_from_a_store(runs: Path, there: str, store: str, tmp_path: Path) -> None:
    import_dataset(None, [runs / "sys0.run", runs / "sys1.run"], tmp_path / "here", qrels=runs / "qrels.txt")
    named = [f"{there}/sys0.run", f"{there}/sys1.run"]
    for n, sources in enumerate((named, f"{there}/*.run", f"{there}/sys[01].run", f"{there}/**/sys*.run")):
        import_dataset(None, sources, tmp_path / f"there{n}", qrels=f"{there}/qrels.txt")
        assert contents(tmp_path / f"there{n}") == contents(tmp_path / "here")
    import_dataset("rankings", runs / "lists.parquet", tmp_path / "lists")
    import_dataset("rankings", f"{there}/lists.parquet", tmp_path / "lists-there")
    assert contents(tmp_path / "lists") == contents(tmp_path / "lists-there")
    assert [file.name for file in source_files(there)] == ["lists.parquet", "qrels.txt", "sys0.run", "sys1.run"]


def test_pieces_from_a_store_into_a_store(runs: Path, there: str, store: str, tmp_path: Path) -> None:
    write_dataset(TrecSource(sorted(runs.glob("*.run"))), tmp_path / "here", block_entries=50)
    source = TrecSource([f"{there}/sys0.run", f"{there}/sys1.run"])
    assert len(source.split(500)) > 4
    target = place(f"{store}/data")
    import_in_pieces(source, target, InlineRunner(), piece_bytes=500, block_entries=50)
    folder = committed(target, "a dataset")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == contents(tmp_path / "here")
    assert sorted(target.sizes()) == ["_SUCCESS", folder.name]


def test_errors_name_the_url_and_the_line(there: str, tmp_path: Path) -> None:
    (place(there) / "sys1.run").write_text("q1 Q0 d1 1 5 t\nq1 Q0 d2 2 x t\n")
    with pytest.raises(InputError, match=r"sys1.run:2: found score 'x'"):
        import_dataset("trec", f"{there}/*.run", tmp_path / "out")
    with pytest.raises(InputError, match=r"absent.run: found nothing there"):
        import_dataset("trec", f"{there}/absent.run", tmp_path / "out")
    with pytest.raises(InputError, match="no file that matches the pattern"):
        import_dataset("trec", f"{there}/*.absent", tmp_path / "out")


@pytest.mark.parametrize(
    "url",
    [
        f"s3://AKIA:{SECRET}@bucket/a.run",
        f"s3://{SECRET}@bucket/a.run",
        f"gs://user:{SECRET}@bucket/a.run",
        f"abfs://account:{SECRET}@container.dfs.core.windows.net/a.run",
        f"https://user:{SECRET}@host/a.run",
    ],
)
def test_credentials_in_urls_are_refused_unseen(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"found credentials in a URL") as caught:
        import_dataset("trec", url, tmp_path / "out")
    assert SECRET not in str(caught.value)


class Files(BaseHTTPRequestHandler):
    """The files of a folder to those who know the signature; parts of files, too."""

    folder: Path

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path, _, query = self.path.partition("?")
        file = self.folder / path.lstrip("/")
        if query != f"X-Amz-Signature={SECRET}" or not file.is_file():
            self.send_error(403 if file.is_file() else 404)
            return
        text = file.read_bytes()
        first, last = 0, len(text) - 1
        if asked := self.headers.get("Range"):
            first, last = (int(word or last) for word in asked.removeprefix("bytes=").split("-"))
        self.send_response(206 if asked else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(text)}")
        self.send_header("Content-Length", str(min(last, len(text) - 1) - first + 1))
        self.end_headers()
        if body:
            self.wfile.write(text[first : last + 1])

    def log_message(self, *about: object) -> None:
        """Say nothing."""


@pytest.fixture
def site(runs: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Files,), {"folder": runs}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_gzip_bombs_in_stores_are_refused(
    store: str, runs: Path, site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "FREE_BYTES", 1 << 18)
    (runs / "bomb.run.gz").write_bytes(gzip.compress(b"q Q0 a 1 2 t\n" + b"\n" * (1 << 20)))
    (place(store) / "bomb.run.gz").write_bytes((runs / "bomb.run.gz").read_bytes())
    for url in (f"{store}/bomb.run.gz", f"{site}/bomb.run.gz?X-Amz-Signature={SECRET}"):
        with pytest.raises(InputError, match="gzipped bytes that unpack to more"):
            import_dataset("trec", [url], tmp_path / "dataset")


def test_signed_addresses_are_never_shown(site: str, runs: Path, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="https:// needs fsspec[http]")
    signed = f"?X-Amz-Signature={SECRET}"
    import_dataset("trec", [runs / "sys0.run", runs / "sys1.run"], tmp_path / "here", qrels=runs / "qrels.txt")
    urls = [f"{site}/sys{e}.run{signed}" for e in range(2)]
    import_dataset("trec", urls, tmp_path / "there", qrels=f"{site}/qrels.txt{signed}")
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    import_in_pieces(TrecSource(urls), tmp_path / "pieces", InlineRunner(), piece_bytes=400)
    assert Dataset.open(tmp_path / "pieces").manifest.entries == 216
    assert str(place(urls[0])) == f"{site}/sys0.run?..."
    assert SECRET not in repr(place(urls[0]))
    for url in (f"{site}/absent.run{signed}", f"{site}/sys0.run{signed}0", f"{site}/*.run{signed}"):
        with pytest.raises(DistaggError) as caught:
            import_dataset("trec", url, tmp_path / "none")
        error: BaseException | None = caught.value
        while error is not None:
            assert SECRET not in str(error)
            error = error.__cause__


JOB = """
name = "nightly"
runs = "{runs}"
[steps.data]
do = "import"
source = "trec"
files = ["{there}/*.run"]
qrels = "{there}/qrels.txt"
[steps.ranked]
do = "rank"
model = "rrf"
dataset = "data"
"""


def test_the_secret_is_nowhere(there: str, address: str, tmp_path: Path) -> None:
    """Commands that succeed and that fail, with all they print and leave: the key and the signature are nowhere."""
    (tmp_path / "job.toml").write_text(JOB.format(runs=tmp_path / "runs", there=there))
    setting = {**os.environ, "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET, "DISTAGG_DEBUG": "1"}
    calls = [
        (0, ["import", "trec", f"{there}/*.run", "--qrels", f"{there}/qrels.txt", "-o", str(tmp_path / "data")]),
        (0, ["run", str(tmp_path / "job.toml")]),
        (3, ["import", "trec", f"{there}/absent.run", "-o", str(tmp_path / "none")]),
        (2, ["import", "trec", f"s3://a:{SECRET}@bucket/x.run", "-o", str(tmp_path / "none")]),
        (2, ["import", "trec", f"https://127.0.0.1:9/*?sig={SECRET}", "-o", str(tmp_path / "none")]),
    ]
    talk = []
    for code, words in calls:
        done = subprocess.run(
            [sys.executable, "-m", "distagg", *words], env=setting, capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == code, done.stderr
        talk.append(done.stdout + done.stderr)
    ask_for_credentials(address, wanted=True)
    try:
        words = ["import", "trec", f"{there}/sys0.run", "-o", str(tmp_path / "none")]
        denied = subprocess.run([sys.executable, "-m", "distagg", *words], env=setting, capture_output=True, text=True)
    finally:
        ask_for_credentials(address, wanted=False)
    assert denied.returncode == 4
    assert SECRET not in "".join(talk) + denied.stdout + denied.stderr
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.name == "report.html" for file in written)
    assert all(SECRET.encode() not in file.read_bytes() for file in written)
    assert json.loads((tmp_path / "data" / "manifest.json").read_text())["entries"] == 216
    shutil.rmtree(tmp_path / "runs")
