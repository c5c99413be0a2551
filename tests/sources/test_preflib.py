from __future__ import annotations

import gzip
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distagg.errors import InputError
from distagg.sources import ranked_lists
from distagg.sources.ranked_lists import RankingsSource

HEAD = """\
# FILE NAME: made-up.toi
# DATA TYPE: toi
# NUMBER ALTERNATIVES: 4
# NUMBER VOTERS: 3
# NUMBER UNIQUE ORDERS: 2
# ALTERNATIVE NAME 1: Ann
# ALTERNATIVE NAME 2: Bob
# ALTERNATIVE NAME 3: Cleo: the third
# ALTERNATIVE NAME 4: Dan
"""
GOOD = HEAD + "2: 3,{1,4},2\n1: 2\n"


def write(folder: Path, text: str, name: str = "vote.toi") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def read(file: Path) -> tuple[list[dict], list[dict]]:
    rows: dict[str, list[dict]] = {"items": [], "entries": []}
    for table in RankingsSource([file]).tables():
        assert table.part == file.name
        rows[table.kind] += table.table.to_pylist()
    return rows["items"], rows["entries"]


def test_counts_ties_and_unranked_alternatives(tmp_path: Path) -> None:
    items, entries = read(write(tmp_path, GOOD))
    assert items == [
        {"query": "vote", "item": name, "label": None} for name in ("Ann", "Bob", "Cleo: the third", "Dan")
    ]
    first = [("Cleo: the third", 1), ("Ann", 2), ("Dan", 2), ("Bob", 4)]
    assert [(row["expert"], row["item"], row["rank"]) for row in entries] == [
        *[("v1", *place) for place in first],
        *[("v2", *place) for place in first],
        ("v3", "Bob", 1),
    ]
    assert {row["query"] for row in entries} == {"vote"}


def test_gzip_keeps_the_stem(tmp_path: Path) -> None:
    file = tmp_path / "vote.toi.gz"
    file.write_bytes(gzip.compress(GOOD.encode()))
    assert read(file) == read(write(tmp_path, GOOD))


@pytest.mark.parametrize("name", ["vote.soc", "vote.soi", "vote.toc", "vote.TOI"])
def test_suffixes(tmp_path: Path, name: str) -> None:
    assert len(read(write(tmp_path, GOOD, name))[1]) == 9


@pytest.mark.parametrize("change", [("NAME 2: Bob", "NAME 2: Ann"), ("NAME 2: Bob", "NAME 2:"), ("NAME 2", "MANE 2")])
def test_names_that_do_not_tell_alternatives_apart(tmp_path: Path, change: tuple[str, str]) -> None:
    items, _ = read(write(tmp_path, GOOD.replace(*change)))
    assert [row["item"] for row in items] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_batches_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    file = write(tmp_path, GOOD.replace("VOTERS: 3", "VOTERS: 12").replace("2: 3", "11: 3"))
    whole = read(file)
    monkeypatch.setattr(ranked_lists, "BATCH_ENTRIES", batch)
    assert read(file) == whole
    assert len(whole[1]) == 45


def test_a_count_of_nothing_is_nobodys_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "distagg"):
        assert read(write(tmp_path, GOOD + "0: 2,1\n0: 3\n")) == read(write(tmp_path, GOOD))
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "skipped 2 orders with a count of 0"
    ]


BAD = [
    ("3 1,2", "'3 1,2'", "'COUNT: ORDER'"),
    ("x: 1,2", "'x: 1,2'", "'COUNT: ORDER'"),
    ("1: 1,{2,3", "'1: 1,{2,3'", "'COUNT: ORDER'"),
    ("1: 1,{{2,3}}", "'1: 1,{{2,3}}'", "'COUNT: ORDER'"),
    ("1: 1,,2", "'1: 1,,2'", "'COUNT: ORDER'"),
    ("1: {}", "'1: {}'", "'COUNT: ORDER'"),
    ("1:", "'1:'", "'COUNT: ORDER'"),
    ("1: Ann", "'1: Ann'", "'COUNT: ORDER'"),
    ("1: 1,5", "alternative 5", "a number from 1 to 4"),
    ("1: 0", "alternative 0", "a number from 1 to 4"),
    ("1: 1,{2,1}", "alternative 1 twice", "each alternative at most once"),
]


@pytest.mark.parametrize(("row", "found", "expected"), BAD, ids=[row for row, _, _ in BAD])
def test_bad_orders(tmp_path: Path, row: str, found: str, expected: str) -> None:
    file = write(tmp_path, GOOD + row + "\n")
    with pytest.raises(InputError) as caught:
        read(file)
    assert (caught.value.file, caught.value.line, caught.value.found) == (str(file), 12, found)
    assert caught.value.expected.startswith(expected)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HEAD, "no orders"),
        ("", "no orders"),
        ("4\n1,Ann\n", "'4'"),
        (HEAD + "2: 3\n", "orders of 2 voters"),
    ],
    ids=["header alone", "empty", "old format", "cut short"],
)
def test_bad_files(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        read(write(tmp_path, text))
    assert caught.value.found == found


def test_locate(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD)
    source = RankingsSource([file])
    assert source.locate("vote", "v2", "Dan") == [(str(file), 10)]
    assert source.locate("vote", "v3", "Bob") == [(str(file), 11)]
    assert source.locate("vote", "v3", "Dan") == []
    assert source.locate("vote", "v9", "Bob") == []
    assert source.locate("vote", None, "Bob") == []


ORDERS = st.integers(1, 7).flatmap(
    lambda n: st.lists(
        st.tuples(
            st.integers(1, 3),
            st.lists(st.tuples(st.integers(1, n), st.booleans()), min_size=1, max_size=n, unique_by=lambda it: it[0]),
        ),
        min_size=1,
        max_size=6,
    )
)


@settings(max_examples=60, deadline=None)
@given(orders=ORDERS)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, orders: list) -> None:
    """Each alternative says whether it is tied with the one before it."""
    n = max(alternative for _, order in orders for alternative, _ in order)
    text, expected, voter = f"# NUMBER ALTERNATIVES: {n}\n", [], 0
    for count, order in orders:
        levels: list[list[int]] = []
        for alternative, tied in order:
            if tied and levels:
                levels[-1].append(alternative)
            else:
                levels.append([alternative])
        words = [str(level[0]) if len(level) == 1 else "{" + ",".join(map(str, level)) + "}" for level in levels]
        text += f"{count}: {','.join(words)}\n"
        ranks = [1 + sum(map(len, levels[:at])) for at, level in enumerate(levels) for _ in level]
        for _ in range(count):
            voter += 1
            expected.append((f"v{voter}", [(str(item), rank) for (item, _), rank in zip(order, ranks, strict=True)]))
    items, entries = read(write(tmp_path_factory.mktemp("preflib"), text))
    assert [row["item"] for row in items] == [str(number + 1) for number in range(n)]
    found = groupby(entries, key=lambda row: row["expert"])
    assert [(name, [(row["item"], row["rank"]) for row in rows]) for name, rows in found] == expected
