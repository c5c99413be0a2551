"""Regrouping against its naive twin: any order of rows, any cut into tables, spilled or not, gives the same dataset."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.build import keyed as gather_module
from distagg.dataset.build import merge as spill_module
from distagg.errors import InputError
from tests.dataset.naive import ListSource, Partition, Rows, naive_regroup, read_back

ids = st.sampled_from(["a", "b", "c", "d", "ee", "ü"])
ranks = st.sampled_from([1.0, 2.0, 2.5, 7.0])


@st.composite
def sources(draw: st.DrawFn, *, pairs: bool = False) -> ListSource:
    partition: Partition = draw(st.sampled_from(["query", "expert"]))
    queries = st.just("q0") if partition == "expert" else st.sampled_from(["q0", "q1", "q2", "q3"])
    ranked = draw(_pair_rows(queries) if pairs else _entry_rows(queries))
    labels = draw(st.dictionaries(st.tuples(queries, ids), st.one_of(st.none(), st.integers(-2, 3)), max_size=8))
    labelled = [{"query": q, "item": i, "label": label} for (q, i), label in labels.items()]
    split = draw(st.integers(0, len(labelled)))
    tables = [
        *_pieces(draw, "pairs" if pairs else "entries", ranked),
        *_pieces(draw, "items", labelled[:split]),
        *_pieces(draw, "judgements", labelled[split:]),
    ]
    return ListSource(draw(st.permutations(tables)), partition)


def _entry_rows(queries: st.SearchStrategy[str]) -> st.SearchStrategy[list[dict[str, object]]]:
    keys = st.lists(st.tuples(queries, ids, ids), unique=True, max_size=40)
    by_score = st.booleans()  # the whole source: rank and score, or score alone
    return st.builds(
        lambda keys, scored, values: [
            {"query": q, "expert": e, "item": i, "rank": None if scored else v, "score": -v if scored else None}
            for (q, e, i), v in zip(keys, values, strict=False)
        ],
        keys, by_score, st.lists(ranks, min_size=40, max_size=40),
    )  # fmt: skip


def _pair_rows(queries: st.SearchStrategy[str]) -> st.SearchStrategy[list[dict[str, object]]]:
    row = st.fixed_dictionaries(
        {"query": queries, "expert": ids, "winner": ids, "loser": ids, "weight": st.sampled_from([0.5, 1.0]),
         "tie": st.booleans()}
    )  # fmt: skip
    return st.lists(row.filter(lambda row: row["winner"] != row["loser"]), max_size=30)


def _pieces(draw: st.DrawFn, kind: str, rows: list[dict[str, object]]) -> list[Rows]:
    cut = draw(st.integers(0, len(rows)))
    part = draw(st.sampled_from(["", "A1", "A2"]))
    return [Rows(kind, some, part) for some in (rows[:cut], rows[cut:]) if some]  # type: ignore[arg-type]


@pytest.mark.parametrize("pairs", [False, True])
@settings(max_examples=60)
@given(data=st.data())
def test_same_as_the_naive_twin(data: st.DataObject, pairs: bool) -> None:
    source = data.draw(sources(pairs=pairs))
    memory = data.draw(st.sampled_from([1, 400, 1 << 20]))
    block = data.draw(st.sampled_from([1, 5, 1 << 17]))
    expected = naive_regroup(source.given, source.partition)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "dataset"
        if not expected:
            with pytest.raises(InputError, match="empty"):
                write_dataset(source, target)
            return
        manifest = write_dataset(source, target, memory_bytes=memory, block_entries=block)
        dataset = Dataset.open(target)
        found = read_back(dataset)
        names = sorted(file.name for file in target.iterdir())
    assert {name: asdict(query) for name, query in found.items()} == {n: asdict(q) for n, q in expected.items()}
    assert list(found) == list(expected)
    assert dataset.manifest == manifest
    assert names == sorted([file.path for file in manifest.files] + ["manifest.json", "_SUCCESS"])

    queries = list(expected.values())
    entries = [entry for q in queries for entries in q.lists.values() for entry in entries]
    assert manifest.queries == len(queries)
    assert manifest.items == sum(len(q.items) for q in queries)
    assert manifest.lists == sum(len(q.lists) for q in queries) == sum(b.lists for b in manifest.blocks)
    assert manifest.entries == len(entries) + sum(len(q.pairs) for q in queries)
    assert manifest.entries == sum(b.entries for b in manifest.blocks)
    assert manifest.labels == {
        str(k): v for k, v in sorted(Counter(v for q in queries for v in q.labels.values()).items())
    }
    ties = sum(
        count for q in queries for e in q.lists.values() for count in Counter(r for _, r, _ in e).values() if count > 1
    )
    assert manifest.ties == ties + sum(pair[-1] for q in queries for pair in q.pairs)
    assert manifest.scores == (bool(entries) and all(score is not None for _, _, score in entries))
    sizes = sorted(len(q.items) for q in queries)
    assert manifest.query_sizes == {"min": sizes[0], "median": sizes[(len(sizes) - 1) // 2], "max": sizes[-1]}


@settings(max_examples=20)
@given(sources(), st.sampled_from([1, 300]))
def test_memory_does_not_change_a_byte(source: ListSource, memory: int) -> None:
    if not naive_regroup(source.given, source.partition):
        return
    with tempfile.TemporaryDirectory() as folder:
        plain = write_dataset(source, Path(folder) / "plain")
        spilled = write_dataset(source, Path(folder) / "spilled", memory_bytes=memory)
    assert plain == spilled


@pytest.mark.parametrize("memory", [1, 1 << 20])
def test_ways_of_copying_give_the_same(memory: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs whole, rows from windows, rows from all batches joined; of batches in order, and of others."""
    monkeypatch.setattr(spill_module, "SPILL_ROWS", 64)
    for order in ((2, 0, 1), (0, 1, 2)):
        rows = [
            {"query": f"q{q}", "expert": f"e{e}", "item": f"i{(i * 7 + e) % 60}", "rank": float(i + 1), "score": None}
            for e in range(3) for q in order for i in range(50)
        ]  # fmt: skip
        source = ListSource([Rows("entries", rows[:170]), Rows("entries", rows[170:])])
        made = []
        for long, wide in ((1, 4), (1 << 40, 1 << 40), (1 << 40, 0)):
            monkeypatch.setattr(gather_module, "LONG_RUN", long)
            monkeypatch.setattr(gather_module, "WIDE", wide)
            folder = tmp_path / f"{order[0]}-{long}-{wide}"
            made.append(write_dataset(source, folder, memory_bytes=memory, block_entries=100))
        assert made[0] == made[1] == made[2]
        naive = naive_regroup(source.given, "query")
        assert read_back(Dataset.open(folder)) == naive


def test_one_expert_with_very_many_pairs_is_cut(tmp_path: Path) -> None:
    rows = [{"query": "all", "expert": "all", "winner": f"w{i % 3}", "loser": "x", "weight": 1.0, "tie": False}
            for i in range(1000)]  # fmt: skip
    source = ListSource([Rows("pairs", rows[:500]), Rows("pairs", rows[500:])], "expert")
    manifest = write_dataset(source, tmp_path / "d", memory_bytes=1, block_entries=100)
    assert [block.entries for block in manifest.blocks] == [100] * 10
    assert read_back(Dataset.open(tmp_path / "d"))["all"].pairs == naive_regroup(source.given, "expert")["all"].pairs


def _entry(query: str, expert: str, item: str, rank: float = 1.0) -> dict[str, object]:
    return {"query": query, "expert": expert, "item": item, "rank": rank, "score": None}


@pytest.mark.parametrize("partition", ["query", "expert"])
def test_the_same_item_twice_in_a_list(tmp_path: Path, partition: Partition) -> None:
    rows = [_entry("q", "a", "x"), _entry("q", "b", "x"), _entry("q", "a", "y"), _entry("q", "a", "x", 9.0)]
    with pytest.raises(InputError, match=r"made-up:4: found item 'x' again in the list of 'a'.*first at made-up:1"):
        write_dataset(ListSource([Rows("entries", rows)], partition), tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("partition", ["query", "expert"])
@pytest.mark.parametrize("kinds", [("items", "items"), ("items", "judgements"), ("judgements", "judgements")])
def test_a_label_that_changes(tmp_path: Path, partition: Partition, kinds: tuple[str, str]) -> None:
    given = [Rows("entries", [_entry("p" if partition == "query" else "q", "a", "y"), _entry("q", "a", "x")])]
    given += [Rows(kind, [{"query": "q", "item": "x", "label": at}]) for at, kind in enumerate(kinds)]  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"made-up:4: found another label for item 'x' of query 'q'"):
        write_dataset(ListSource(given, partition), tmp_path / "d")


@pytest.mark.parametrize("partition", ["query", "expert"])
def test_a_pair_of_one_item(tmp_path: Path, partition: Partition) -> None:
    row = {"query": "q", "expert": "a", "winner": "x", "loser": "x", "weight": 1.0, "tie": False}
    with pytest.raises(InputError, match=r"made-up:1: found item 'x' of query 'q' paired with itself by 'a'"):
        write_dataset(ListSource([Rows("pairs", [row])], partition), tmp_path / "d")


def test_one_query_means_one(tmp_path: Path) -> None:
    rows = [_entry("q", "a", "x"), _entry("p", "a", "x")]
    with pytest.raises(InputError, match="found queries 'q' and 'p', expected one query"):
        write_dataset(ListSource([Rows("entries", rows)], "expert"), tmp_path / "d")


def test_judgements_alone_are_nothing_to_rank(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        write_dataset(ListSource([Rows("judgements", [{"query": "q", "item": "x", "label": 1}])]), tmp_path / "d")
