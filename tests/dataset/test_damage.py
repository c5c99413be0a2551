"""Damage is noticed: every flipped bit of a dataset, a model or a ranking gives an error, or changes nothing."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distagg
from distagg.dataset import Dataset, write_dataset
from distagg.dataset.build import writer
from distagg.dataset.check import check_chunk
from distagg.dataset.chunk import Chunk
from distagg.dataset.frames import TableSource
from distagg.engine.rank import rank_to
from distagg.engine.rank_incremental import _add_columns
from distagg.engine.read_rankings import read_rankings
from distagg.engine.saved import Fitted, load_model, save_model
from distagg.errors import InputError
from distagg.models import model_named
from distagg.storage.atomic import digest
from distagg.storage.sealed import MANIFEST, check_seal, sealed
from distagg.storage.verified import footer_hash, known_footer, read_groups

FLIPS = 20
LISTS = pa.table(
    {
        "query": [f"q{q}" for q in range(6) for _ in range(12)],
        "expert": [f"e{e}" for _ in range(6) for e in range(3) for _ in range(4)],
        "item": [f"d{(7 * n) % 11}" for n in range(72)],
        "score": [float((5 * n) % 13) for n in range(72)],
        "label": [None] * 72,
    }
)
PAIRS = pa.table(
    {
        "expert": [f"e{n % 3}" for n in range(60)],
        "winner": [f"d{n % 5}" for n in range(60)],
        "loser": [f"d{5 + n % 4}" for n in range(60)],
    }
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of lists, one of pairs, a model and rankings."""
    folder = tmp_path_factory.mktemp("made")
    write_dataset(TableSource(LISTS), folder / "lists", block_entries=24)
    write_dataset(TableSource(PAIRS), folder / "pairs")
    dataset = Dataset.open(folder / "lists")
    params = {"expert_weight": np.linspace(0.1, 0.9, 3), "curve": np.arange(7.0)}
    save_model(folder / "model", Fitted(model_named("rrf"), params, dataset.experts))
    rank_to(folder / "ranked", model_named("rrf"), {}, dataset)
    return folder


def _rank(path: Path) -> pa.Table:
    dataset = Dataset.open(path)
    model = model_named("copeland" if dataset.manifest.kind == "pairs" else "combsum")
    return distagg.rank(model, dataset)


def _load(path: Path) -> list[object]:
    fitted = load_model(path)
    return [fitted.model, fitted.experts, {name: array.tolist() for name, array in fitted.params.items()}]


KINDS: list[tuple[str, str, Callable[[Path], object]]] = [
    ("lists", "lists-00000.parquet", _rank),
    ("lists", "queries-00000.parquet", _rank),
    ("lists", "experts.parquet", _rank),
    ("lists", "manifest.json", _rank),
    ("pairs", "pairs-00000.parquet", _rank),
    ("pairs", "queries-00000.parquet", _rank),
    ("model", "params.parquet", _load),
    ("model", "experts.parquet", _load),
    ("model", "manifest.json", _load),
    ("ranked", "part-00000.parquet", read_rankings),
    ("ranked", "_manifest.json", read_rankings),
]


@pytest.mark.parametrize(
    ("kind", "name", "read"), KINDS, ids=lambda value: str(value) if isinstance(value, str) else ""
)
def test_a_flipped_bit_is_an_error_or_changes_nothing(
    kind: str, name: str, read: Callable[[Path], object], made: Path, tmp_path: Path
) -> None:
    expected = read(made / kind)
    shutil.copytree(made / kind, tmp_path / kind)
    file = tmp_path / kind / name
    whole = file.read_bytes()
    noticed = 0
    for bit in np.random.default_rng(len(whole)).integers(0, 8 * len(whole), FLIPS):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << (bit % 8)
        file.write_bytes(damaged)
        known_footer.cache_clear()
        message = ""
        try:
            assert read(tmp_path / kind) == expected, f"bit {bit} of {name}"
        except InputError as error:
            message, noticed = str(error), noticed + 1
        assert not message or str(tmp_path / kind) in message
    assert noticed > FLIPS // 2  # a checksum that is never looked at would notice none


def test_files_of_earlier_versions_are_read(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without checksums of pages, hashes of footers and checksums of manifests."""
    monkeypatch.setattr(writer, "_SHARED", {"compression": "lz4", "write_statistics": False})
    write_dataset(TableSource(LISTS), tmp_path / "lists", block_entries=24)
    body = json.loads((tmp_path / "lists" / MANIFEST).read_text())
    for file in body["files"]:
        del file["footer"]
    del body["checksum"]
    (tmp_path / "lists" / MANIFEST).write_text(json.dumps(body))
    assert Dataset.open(tmp_path / "lists").plan()[0].footers == ()
    assert _rank(tmp_path / "lists").equals(_rank(made / "lists"))


def test_the_footer_of_each_file_is_checked(made: Path) -> None:
    file = made / "lists" / "lists-00000.parquet"
    assert read_groups(file, None, None, footer_hash(file)).equals(pq.read_table(file))
    with pytest.raises(InputError, match="its footer is not the one that was written"):
        read_groups(file, None, None, "0" * 16)
    refs = Dataset.open(made / "lists").plan(30)
    assert dict(refs[-1].footers)["lists-00000.parquet"] == footer_hash(file)


def test_counts_must_be_those_of_the_footer(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = made / "lists" / "lists-00000.parquet"
    whole = pq.ParquetFile.read_row_groups

    def cut(self: pq.ParquetFile, *arguments: object, **options: object) -> pa.Table:
        table = whole(self, *arguments, **options)
        items = [*table["item"].to_pylist()[:-1], table["item"].to_pylist()[-1][:-1]]
        return table.set_column(2, "item", pa.array(items, table.schema.field("item").type))

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", cut)
    with pytest.raises(InputError, match="71 values in column item, but its footer says 72"):
        read_groups(file, None, None)
    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", lambda self, *a, **o: whole(self, *a, **o).slice(1))
    with pytest.raises(InputError, match="rows, but its footer says"):
        read_groups(file, None, None)


def test_a_manifest_knows_its_own_content() -> None:
    body = {"b": [1, 2.5, None, "x"], "a": {"z": True, "y": float("inf")}}
    assert check_seal(json.loads(sealed(body)), "f") == body
    assert list(check_seal(json.loads(sealed(body, sort=False)), "f")) == ["b", "a"]
    assert sealed(json.loads(sealed(body))) == sealed(body)
    with pytest.raises(InputError, match="checksum that is not that of its content"):
        check_seal({**json.loads(sealed(body)), "b": 2}, "f")


@pytest.mark.parametrize(
    "changes",
    [
        {"files": None},
        {"files": [{"path": "../x", "rows": 1, "bytes": 1, "sha256": "0" * 64}]},
        {"files": [{"path": "/etc/passwd", "rows": 1, "bytes": 1, "sha256": "0" * 64}]},
        {"files": [{"path": "experts.parquet"}]},
        {"files": []},
        {"files": "experts.parquet"},
        {"blocks": [[]]},
        {"blocks": [{"file": -1}]},
        {"queries": "many"},
        {"queries": -1},
        {"queries": True},
        {"kind": "trees"},
        {"labels": [1]},
        {"labels": {"x": 1}},
        {"query_sizes": {"min": 1, "median": None, "max": 2}},
        {"times": ["a"]},
        {"covariates": [{}]},
        {"surprise": 1},
    ],
    ids=str,
)
def test_a_manifest_with_other_fields_is_bad_input(changes: dict[str, object], made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "lists", tmp_path / "lists")
    body = json.loads((made / "lists" / MANIFEST).read_text())
    (tmp_path / "lists" / MANIFEST).write_bytes(sealed({**body, **changes}))
    with pytest.raises(InputError, match=r"manifest\.json"):
        Dataset.open(tmp_path / "lists")


def test_a_manifest_that_is_no_text_is_bad_input(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "lists", tmp_path / "lists")
    (tmp_path / "lists" / MANIFEST).write_bytes(b"\xff\xfe{}")
    with pytest.raises(InputError, match="unreadable manifest"):
        Dataset.open(tmp_path / "lists")
    (tmp_path / "lists" / "_SUCCESS").write_bytes(b"\xff")
    with pytest.raises(InputError, match="_SUCCESS"):
        Dataset.open(tmp_path / "lists")


def _rewrite(folder: Path, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change a table, and let the manifest hold the new hashes, as a program that writes datasets could."""
    file = folder / name
    table = change(pq.read_table(file))
    pq.write_table(table, file, row_group_size=max(1, len(table)))
    body = json.loads((folder / MANIFEST).read_text())
    for entry in body["files"]:
        if entry["path"] == name:
            entry |= {"bytes": file.stat().st_size, "sha256": digest(file), "footer": footer_hash(file)}
    (folder / MANIFEST).write_bytes(sealed(body))


def _with_list(name: str, row: int, place: int, value: object) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        lists = table[name].to_pylist()
        lists[row][place] = value
        at = table.column_names.index(name)
        return table.set_column(at, name, pa.array(lists, table.schema.field(name).type))

    return change


def _with(
    name: str, value: Callable[[list[int]], list[object]], kind: pa.DataType | None = None
) -> Callable[..., pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at, field = table.column_names.index(name), table.schema.field(name)
        return table.set_column(at, name, pa.array(value(table[name].to_pylist()), kind or field.type))

    return change


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("lists", _with_list("item", 1, 0, 2_000_000_000), "found item 2000000000 in query 'q0' of"),
        ("lists", _with_list("item", 17, 3, -5), "found item -5 in query 'q5' of"),
        ("lists", _with_list("rank", 4, 1, float("nan")), "found the rank nan, expected finite"),
        ("lists", _with_list("rank", 4, 3, -9.0), "found rank -9 after [0-9]+ in a list"),
        ("lists", _with_list("item", 0, 0, None), "1 missing values in column item"),
        ("lists", _with("expert", lambda old: [3, *old[1:]]), "found expert 3, expected 0 to 2"),
        ("lists", _with("expert", lambda old: [*old[:-1], -1]), "found expert -1"),
        ("lists", _with("query", lambda old: [*old[1:], 0]), "out of the order of queries"),
        ("lists", _with("query", lambda old: [*old[:-1], 6]), "out of the order of queries, or of other queries"),
        ("lists", _with("query", lambda old: [-1, *old[1:]]), "out of the order of queries, or of other queries"),
        ("lists", _with("expert", list, pa.int64()), "column expert of type int64, expected int32"),
        ("lists", lambda table: table.drop_columns(["rank"]), "found no column rank"),
        ("lists", _with("rank", lambda old: [old[0][:-1], *old[1:]]), "4 values of item and 3 of rank in row 0"),
        ("pairs", _with("winner", lambda old: [*old[:-1], 9]), "found item 9 in query 'all' of 9 items"),
        ("pairs", _with("loser", lambda old: [-1, *old[1:]]), "found item -1 in query 'all'"),
        ("pairs", _with("expert", lambda old: [99, *old[1:]]), "found expert 99"),
        ("pairs", _with("weight", lambda old: [float("inf"), *old[1:]]), "found the weight inf"),
        ("pairs", _with("tie", lambda old: [None, *old[1:]]), "1 missing values in column tie"),
    ],
)
def test_numbers_out_of_range_never_reach_a_kernel(
    kind: str, change: Callable[[pa.Table], pa.Table], said: str, made: Path, tmp_path: Path
) -> None:
    write_dataset(TableSource(LISTS if kind == "lists" else PAIRS), tmp_path / kind)
    _rewrite(tmp_path / kind, f"{kind}-00000.parquet", change)
    with pytest.raises(InputError, match=rf"{kind}-00000\.parquet: .*{said}"):
        _rank(tmp_path / kind)


def test_items_and_labels_of_a_query_must_be_as_many(tmp_path: Path) -> None:
    write_dataset(TableSource(LISTS), tmp_path / "lists")
    _rewrite(tmp_path / "lists", "queries-00000.parquet", _with("item", lambda old: [old[0][:-1], *old[1:]]))
    with pytest.raises(InputError, match="of label and"):
        _rank(tmp_path / "lists")


def _naive_problem(chunk: Chunk) -> bool:
    """Whether an entry is out of its query, or a rank out of order: loops over everything."""
    for q in range(chunk.n_queries):
        size = chunk.item_offsets[q + 1] - chunk.item_offsets[q]
        for a_list in range(chunk.list_offsets[q], chunk.list_offsets[q + 1]):
            before = -np.inf
            for e in range(chunk.entry_offsets[a_list], chunk.entry_offsets[a_list + 1]):
                if not 0 <= chunk.entry_item[e] < size or not before <= chunk.entry_rank[e] < np.inf:
                    return True
                before = chunk.entry_rank[e]
    return False


def test_the_vectorised_check_is_the_naive_one(made: Path) -> None:
    chunk = Dataset.open(made / "lists").plan()[0].load()
    rows = pa.chunked_array([np.repeat(chunk.positions, np.diff(chunk.list_offsets))])
    draw = np.random.default_rng(5)
    outcomes = []
    for _ in range(300):
        item, rank = chunk.entry_item.copy(), chunk.entry_rank.copy()
        at = draw.integers(0, len(item))
        if draw.random() < 0.5:
            item[at] = draw.integers(-2, 13)
        else:
            rank[at] = draw.choice([rank[at], rank[at] - 1, rank[at] + 1, np.nan, np.inf])
        changed = replace(chunk, entry_item=item, entry_rank=rank)
        try:
            check_chunk(changed, rows, "f")
            refused = False
        except InputError:
            refused = True
        assert refused == _naive_problem(changed)
        outcomes.append(refused)
    assert 50 < sum(outcomes) < 250


def test_a_damaged_name_of_the_checksum_is_noticed() -> None:
    body = sealed({"b": 1.5, "a": [1, None], "sha256": "0" * 64})
    at = body.index(b'"checksum"') + 1
    for byte in range(at, at + len("checksum")):
        for bit in range(7):
            damaged = bytearray(body)
            damaged[byte] ^= 1 << bit
            try:
                content = json.loads(damaged)
            except ValueError:
                continue
            with pytest.raises(InputError, match="a checksum that is not that of its content"):
                check_seal(content, "a.json")
    assert check_seal({"a": 1, "sha256": "0" * 64}, "a.json") == {"a": 1, "sha256": "0" * 64}


def test_arrow_is_not_asked_about_columns_that_it_has_not_read(tmp_path: Path) -> None:
    """Otherwise a damaged description of a column would end this process.

    The first row group has 54 rows, as many as the footer says that both have: rows of the second are never decoded.
    """
    file = tmp_path / "forged.parquet"
    schema = pa.schema({"item": pa.list_(pa.int32())})
    with pq.ParquetWriter(file, schema, write_statistics=False) as parquet:
        for rows in (54, 27):
            parquet.write_table(pa.table({"item": [[1, 2]] * rows}, schema=schema))
    body = file.read_bytes()
    start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    claims = [at for at in range(start, len(body)) if body[at : at + 2] == b"\x16\x6c"]  # 54, as Thrift writes it
    claim = next(at for at in claims if _rows(file, body[:at] + b"\x16\x36" + body[at + 2 :]) == [27, 27])
    body = body[:claim] + b"\x16\x36" + body[claim + 2 :]
    for at in range(claim, len(body) - 8):
        file.write_bytes(body[:at] + bytes([(body[at] + 16) % 256]) + body[at + 1 :])
        with suppress(InputError):
            read_groups(file, [0, 1], None)
        with suppress(InputError):
            _add_columns(hashlib.sha256(), file, 1, without="")


def _rows(file: Path, body: bytes) -> list[int]:
    """The rows of each row group, as the footer says."""
    file.write_bytes(body)
    metadata = pq.read_metadata(file)
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
