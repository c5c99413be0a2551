"""Import in pieces: the bytes and the errors of an import in one process, whatever the pieces, whoever dies."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distagg.dataset.build import merge
from distagg.dataset.build import writer as writer_module
from distagg.dataset.build.writer import write_dataset
from distagg.engine import import_parallel
from distagg.engine.import_parallel import import_in_pieces, staging_of
from distagg.engine.importing import import_dataset
from distagg.engine.runner import InlineRunner
from distagg.errors import InfrastructureError, InputError
from distagg.sources.letor import LetorSource
from distagg.sources.observed_pairs import PairsSource
from distagg.sources.ranked_lists import RankingsSource
from distagg.sources.ratings import RatingsSource, read_about
from distagg.sources.trec import JudgedSource, TrecSource

Made = tuple[Callable[[], Any], dict[str, Any]]


class Elsewhere(InlineRunner):
    """Tasks as workers run them: payloads and results are pickled. ``client`` says that this is a cluster."""

    client: Any = "here"

    def __init__(self, stop_after: int | None = None) -> None:
        self.left, self.done = stop_after, []

    def each(self, function: Any, payloads: Sequence[Any], progress: Any = None) -> Iterator[Any]:
        for payload in payloads:
            if self.left is not None and len(self.done) >= self.left:
                raise InfrastructureError("no worker for 60 seconds")
            self.done.append(function.__name__)
            yield pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(payload)))))


def runs(folder: Path, queries: int = 16) -> list[Path]:
    files = []
    for e in range(4):
        file = folder / f"run{e}"
        order = [q for q in range(queries) if q % (e + 2)] if e < 3 else list(reversed(range(queries)))
        file.write_text(
            "".join(
                f"q{q} Q0 d{(i * (7 + e) + q) % 41} {i + 1} {-(i // 2)} t{e}{i % 2}\n" for q in order for i in range(9)
            )
        )
        files.append(file)
    return files


def trec(folder: Path, **options: Any) -> Made:
    files = runs(folder)
    return lambda: TrecSource(files, **options), {}


def judged(folder: Path) -> Made:
    files = runs(folder)
    (folder / "qrels").write_text("".join(f"q{q} 0 d{i} {i % 3}\n" for q in range(20) for i in range(45)))
    return lambda: JudgedSource(TrecSource(files), [folder / "qrels"]), {}


def zipped(folder: Path) -> Made:
    files = runs(folder)
    for file in files[:2]:
        file.with_suffix(".gz").write_bytes(gzip.compress(file.read_bytes()))
    return lambda: TrecSource([files[0].with_suffix(".gz"), files[1].with_suffix(".gz"), *files[2:]]), {}


def letor(folder: Path, docid: bool = True) -> Made:
    files = []
    for part in range(3):
        lines = [
            f"{(q + d) % 3} qid:{part * 10 + q} "
            + " ".join(f"{e}:{'NULL' if (q + d + e) % 4 == 0 else (d * e + q) % 13 + 1}" for e in range(1, 6))
            + (f" #docid = d{d} inc = 1" if docid else "")
            for q in range(10)
            for d in range(7)
        ]
        files.append(folder / f"A{part}.txt")
        files[-1].write_text("\n\n".join(lines) + "\n")
    return lambda: LetorSource(files), {}


def ratings(folder: Path, form: str) -> Made:
    rng = np.random.default_rng(3)
    cells = rng.permutation(40 * 25)[:600]
    rows = [(int(c // 25) + 1, int(c % 25) + 1, int(rng.integers(1, 6))) for c in cells]
    file = folder / f"ratings{form}"
    if form == ".csv":
        file.write_text("userId,movieId,rating,timestamp\n" + "".join(f"{u},{i},{r}.5,8\n" for u, i, r in rows))
    elif form == ".parquet":
        user, item, rating = zip(*rows, strict=True)
        pq.write_table(pa.table({"user": user, "item": item, "rating": rating}), file, row_group_size=50)
    else:
        file.write_text("".join(f"{u}\t{i}\t{r}\t881250949\n" for u, i, r in rows))
    if form != ".data":
        return lambda: RatingsSource([file]), {}
    (folder / "u.user").write_text("".join(f"{u}|24|M|technician|85711\n" for u in range(1, 41)))
    (folder / "items.csv").write_text("id,title\n" + "".join(f"{i},t{i}\n" for i in range(30, 0, -1)))
    about = {"users": read_about(folder / "u.user"), "items": read_about(folder / "items.csv")}
    return lambda: RatingsSource([file], **about, scale=(1, 5)), about


def long_rows() -> pa.Table:
    rows = [
        (f"q{q}", f"e{e}", f"x{i}", float((i * (e + 3)) % 11 + 1), (q + i) % 3)
        for q in (3, 1, 2, 7)
        for e in range(5)
        for i in range(6)
    ]
    return pa.table(
        dict(zip(("query", "expert", "item", "rank", "label"), map(list, zip(*rows, strict=True)), strict=True))
    )


def rankings(folder: Path, form: str) -> Made:
    table = long_rows()
    file = folder / f"lists{form}"
    if form == ".parquet":
        pq.write_table(table, file, row_group_size=17)
    elif form == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        mark, between = '"' if form == ".quoted.csv" else "", "\t" if form == ".tsv" else ","
        lines = [table.column_names, *([*row.values()] for row in table.to_pylist())]
        file.write_text("".join(between.join(f"{mark}{cell}{mark}" for cell in line) + "\n" for line in lines))
    other = folder / "votes.soi"
    other.write_text("# NUMBER ALTERNATIVES: 3\n# NUMBER VOTERS: 4\n3: 1,{2,3}\n1: 3,1\n")
    return lambda: RankingsSource([file, other]), {}


def pairs(folder: Path, query: bool, experts: int) -> Made:
    rng = np.random.default_rng(5)
    head = "winner,loser,expert,time" + (",query" if query else "")
    lines = [
        f"m{i},m{(i + 1 + j) % 9},e{int(rng.integers(experts))},{1_700_000_000 + n}" + (f",q{n % 4}" if query else "")
        for n, (i, j) in enumerate(rng.integers(0, 7, (300, 2)).tolist())
    ]
    file = folder / "pairs.csv"
    file.write_text("\n".join([head, *lines]) + "\n")
    return lambda: PairsSource([file]), {}


def battles(folder: Path) -> Made:
    rng = np.random.default_rng(6)
    lines = ["model_a,model_b,winner,judge,language,style_a,style_b"]
    for _ in range(250):
        a, b = rng.permutation(8)[:2]
        words = (f"l{rng.integers(5)}", f"s{rng.integers(6)}", f"s{rng.integers(6)}")
        lines.append(
            f"m{a},m{b},{('model_a', 'model_b', 'tie')[rng.integers(3)]},j{rng.integers(3)}," + ",".join(words)
        )
    file = folder / "battles.csv"
    file.write_text("\n".join(lines) + "\n")
    return lambda: PairsSource([file], covariates="language,style_a-style_b"), {}


CASES: dict[str, Callable[[Path], Made]] = {
    "trec": trec,
    "trec by rank": lambda folder: trec(folder, by="rank", expert="tag"),
    "trec and qrels": judged,
    "trec, some gzipped": zipped,
    "letor": letor,
    "letor without docids": lambda folder: letor(folder, docid=False),
    "u.data": lambda folder: ratings(folder, ".data"),
    "ratings.csv": lambda folder: ratings(folder, ".csv"),
    "ratings.parquet": lambda folder: ratings(folder, ".parquet"),
    "lists.csv": lambda folder: rankings(folder, ".csv"),
    "lists.csv in quotes": lambda folder: rankings(folder, ".quoted.csv"),
    "lists.tsv": lambda folder: rankings(folder, ".tsv"),
    "lists.jsonl": lambda folder: rankings(folder, ".jsonl"),
    "lists.parquet": lambda folder: rankings(folder, ".parquet"),
    "pairs of one expert": lambda folder: pairs(folder, query=False, experts=1),
    "pairs of experts": lambda folder: pairs(folder, query=False, experts=4),
    "pairs of experts in queries": lambda folder: pairs(folder, query=True, experts=4),
    "battles with covariates": battles,
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of three blocks."""
    monkeypatch.setattr(writer_module, "FILE_BLOCKS", 3)
    monkeypatch.setattr("distagg.dataset.build.join_names.FILE_BLOCKS", 3)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("case", CASES)
def test_the_same_bytes_for_any_pieces(tmp_path: Path, case: str) -> None:
    make, about = CASES[case](tmp_path)
    write_dataset(make(), tmp_path / "whole", block_entries=40, **about)
    for n, (piece_bytes, memory) in enumerate([(400, 1 << 20), (2000, 1)]):
        runner, rows = Elsewhere(), []
        target = tmp_path / f"pieces{n}"
        import_in_pieces(
            make(),
            target,
            runner,
            piece_bytes=piece_bytes,
            memory_bytes=memory,
            block_entries=40,
            progress=rows.append,
            **about,
        )
        assert contents(target) == contents(tmp_path / "whole")
        entries = json.loads((target / "manifest.json").read_text())["entries"]
        assert sum(rows) == 2 * entries
        assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]
    assert "_merge_task" in runner.done


def test_large_files_are_read_in_spans(tmp_path: Path) -> None:
    for case in ("trec", "letor", "u.data", "lists.csv", "lists.jsonl", "lists.parquet", "pairs of experts"):
        (folder := tmp_path / case.replace(" ", "_")).mkdir()
        pieces = CASES[case](folder)[0]().split(400)
        assert len(pieces) > 4, case
    pieces = CASES["trec, some gzipped"](tmp_path)[0]().split(100)
    assert [piece.files[0].suffix for piece in pieces[:2]] == [".gz", ".gz"]
    assert pieces[2].files == pieces[3].files


def test_a_quote_far_down_makes_a_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distagg.sources.tables.SNIFF_BYTES", 20)
    rows = "".join(f"q{q},e{e},x{i},{i}\n" for q in range(5) for e in range(3) for i in range(1, 6))
    (tmp_path / "lists.csv").write_text("query,expert,item,rank\n" + rows + 'q9,e1,"a\nb",1\n')
    source = RankingsSource([tmp_path / "lists.csv"])
    assert len(source.split(100)) > 4
    write_dataset(source, tmp_path / "whole")
    import_in_pieces(source, tmp_path / "pieces", Elsewhere(), piece_bytes=100)
    assert contents(tmp_path / "pieces") == contents(tmp_path / "whole")


BAD = {
    "trec, a word for a score": ("trec", "q40 Q0 d1 1 x t\n"),
    "trec, twice": ("trec", "q1 Q0 d7 9 0.5 t\nq1 Q0 d7 10 0.4 t\n"),
    "letor, a bad label": ("letor", "x qid:3 1:1 #docid = a\n"),
    "letor, twice": ("letor", "1 qid:5 1:9 #docid = d3\n"),
    "u.data, twice": ("u.data", "1\t1\t4\t0\n1\t1\t4\t0\n"),
    "u.data, off the scale": ("u.data", "1\t29\t9\t0\n"),
    "lists.csv, no rank": ("lists.csv", "q1,e1,x9,zero,1\n"),
    "lists.csv, a cell too many": ("lists.csv", "q1,e1,x9,1,1,1\n"),
    "lists.jsonl, broken": ("lists.jsonl", "{broken\n"),
    "lists.jsonl, another label": (
        "lists.jsonl",
        '{"query": "q3", "expert": "e9", "item": "x1", "rank": 1.0, "label": 9}\n',
    ),
    "pairs, itself": ("pairs of experts", "m1,m1,e1,1700000000\n"),
}


@pytest.mark.parametrize("case", BAD)
def test_the_same_errors(tmp_path: Path, case: str) -> None:
    name, text = BAD[case]
    source = CASES[name](tmp_path)[0]()
    file = source.files[-1] if name in ("trec", "letor") else source.files[0]
    with file.open("a") as out:
        out.write(text)
    kind = {"u.data": "ratings", "lists.csv": "rankings", "lists.jsonl": "rankings", "pairs of experts": "pairs"}.get(
        name, name
    )
    options: dict[str, Any] = {"scale": (1, 5)} if kind == "ratings" else {}
    with pytest.raises(InputError) as inline:
        import_dataset(kind, list(source.files), tmp_path / "a", **options)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(InputError) as pieces:
        defaults = {**(import_in_pieces.__kwdefaults__ or {}), "piece_bytes": 300}
        patch.setattr(import_parallel.import_in_pieces, "__kwdefaults__", defaults)
        import_dataset(kind, list(source.files), tmp_path / "b", runner=Elsewhere(), **options)
    assert str(pieces.value) == str(inline.value)
    assert pieces.value.line is not None
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".") or path.is_dir()]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("case", ["trec and qrels", "u.data", "pairs of experts in queries"])
def test_a_driver_that_stops_anywhere_goes_on_from_there(tmp_path: Path, case: str) -> None:
    make, about = CASES[case](tmp_path)
    write_dataset(make(), tmp_path / "whole", block_entries=40, **about)

    def run(target: Path, stop_after: int | None) -> list[str]:
        runner = Elsewhere(stop_after)
        try:
            import_in_pieces(make(), target, runner, piece_bytes=2000, block_entries=40, **about)
        except InfrastructureError:
            assert not target.exists()
        return runner.done

    all_tasks = run(tmp_path / "at once", None)
    assert {"_read_task", "_sort_task", "_merge_task"} == {*all_tasks}
    for stop in range(1, len(all_tasks), len(all_tasks) // 3):
        target = tmp_path / f"stopped{stop}"
        first = run(target, stop)
        assert len(first) == stop
        assert staging_of(target, b"").exists()
        assert first + run(target, None) == all_tasks
        assert contents(target) == contents(tmp_path / "whole")


def test_staging_of_other_sources_is_not_used(tmp_path: Path) -> None:
    files = runs(tmp_path)
    with pytest.raises(InfrastructureError):
        import_in_pieces(TrecSource(files), tmp_path / "out", Elsewhere(2), piece_bytes=500)
    files[0].write_text("q1 Q0 other 1 2.0 t\n")
    runner = Elsewhere()
    import_in_pieces(TrecSource(files), tmp_path / "out", runner, piece_bytes=500)
    assert runner.done.count("_read_task") == len(TrecSource(files).split(500))
    write_dataset(TrecSource(files), tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_damaged_run_is_read_again(tmp_path: Path) -> None:
    files = runs(tmp_path)
    with pytest.raises(InfrastructureError):
        import_in_pieces(TrecSource(files), tmp_path / "out", Elsewhere(3), piece_bytes=500)
    run = next(staging_of(tmp_path / "out", b"").glob("piece-00001-*.arrow"))
    run.write_bytes(run.read_bytes()[:-8])
    runner = Elsewhere()
    import_in_pieces(TrecSource(files), tmp_path / "out", runner, piece_bytes=500)
    write_dataset(TrecSource(files), tmp_path / "whole")
    assert runner.done.count("_read_task") == len(TrecSource(files).split(500)) - 2
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize("case", ["trec and qrels", "u.data"])
def test_many_runs_are_merged_without_being_held(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, about = CASES[case](tmp_path)
    write_dataset(make(), tmp_path / "whole", block_entries=40, **about)
    monkeypatch.setattr(merge, "MANY_SPILLS", 2)
    closed = []
    monkeypatch.setattr(merge.Spill, "close", lambda spill, close=merge.Spill.close: (closed.append(1), close(spill)))
    import_in_pieces(make(), tmp_path / "pieces", Elsewhere(), piece_bytes=700, block_entries=40, **about)
    assert contents(tmp_path / "pieces") == contents(tmp_path / "whole")
    assert closed
