"""Which experts are heard: conditions, draws, and chunks in which experts speak so many times."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Query, build_chunk, chunks

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.select import condition, drawn
from distagg.errors import UsageError
from distagg.sources.ratings import RatingsSource

PEOPLE = pa.table({"id": list("abcd"), "age": [20, 30, 40, None], "job": ["cook", "it's", "cook", "or"]})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("people")
    (folder / "r.tsv").write_text("".join(f"{who}\tx\t{n}\n{who}\ty\t3\n" for n, who in enumerate("abcd")))
    write_dataset(RatingsSource([folder / "r.tsv"]), folder / "d", users=PEOPLE)
    return Dataset.open(folder / "d")


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("age < 40", "ab"),
        ("age<=40 AND job = 'cook'", "ac"),
        ("not (age = 20 or age == 30)", "c"),  # who gave no age is in neither
        ("job in ('cook', \"it's\")", "abc"),
        ("job not in ('cook')", "bd"),
        ("job = 'or' or age > 39.5", "cd"),
        ("expert != 'a' and age >= 20", "bc"),
    ],
)
def test_conditions(dataset: Dataset, text: str, heard: str) -> None:
    chosen = dataset.select(audience=text)
    (chunk,) = chosen.chunks()
    assert "".join(dataset.experts[e] for e in chunk.list_expert) == heard
    assert chosen.audience_size == len(heard)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("aeg < 3", "did you mean 'age'"),
        ("age <", "found its end, expected a number"),
        ("age < 3 age", "found 'age', expected 'and' or 'or'"),
        ("(age < 3", r"expected '\)'"),
        ("age ~ 3", "found '~ 3'"),
        ("age 3", "found '3', expected one of ="),
        ("age in 3", r"expected '\('"),
        ("age in (3", "expected ',' or"),
        ("age not 3", "expected 'in'"),
        ("'age' = 3", "expected a column"),
        ("", "found its end, expected a column"),
        ("age < 'x'", "do not fit the columns"),
        ("age > 99", "matches none of the 4 experts"),
    ],
)
def test_wrong_conditions_are_explained(dataset: Dataset, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        dataset.select(audience=text)


def test_tables_in_memory_have_no_columns_to_choose_by() -> None:
    table = pa.table({"expert": ["a"], "item": ["x"], "rank": [1]})
    with pytest.raises(UsageError, match="on disk"):
        Dataset.from_arrow(table).select(audience="age < 3")


def test_a_mask_of_arrows() -> None:
    assert PEOPLE.filter(condition("age < 40", PEOPLE))["id"].to_pylist() == ["a", "b"]


def test_dates_and_categories() -> None:
    born = pa.array([datetime.date(1990, 1, 1), datetime.date(2000, 1, 1)])
    people = pa.table({"born": born, "job": pa.array(["cook", "smith"]).dictionary_encode()})
    assert condition("born < '1995-06-30' and job = 'cook'", people).to_pylist() == [True, False]


def test_draws_are_of_the_audience_and_repeat_by_seed_alone(dataset: Dataset) -> None:
    for number in range(20):
        times = drawn(dataset.path, "age < 40", 4, 7, number)
        assert times.sum() == 2
        assert not times[2:].any()
    twice = [[drawn("", "", 50, 3, n).tolist() for n in range(3)] for _ in range(2)]
    assert twice[0] == twice[1]
    assert twice[0][0] != twice[0][1]
    (chunk,) = dataset.select(draw=(7, 1)).chunks()
    np.testing.assert_array_equal(np.bincount(chunk.list_expert, minlength=4), drawn(dataset.path, "", 4, 7, 1))


@settings(max_examples=50)
@given(drawn=chunks(), times=st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_repeated_experts_are_lists_written_so_often(drawn: tuple[list[Query], object], times: list[int]) -> None:
    made, chunk = drawn
    found = chunk.repeat_experts(np.array(times))
    for q, query in enumerate(made):
        wanted = [(e, sorted(r.items(), key=lambda x: (x[1], x[0]))) for e, r in sorted(query.lists.items())]
        wanted = [one for one in wanted for _ in range(times[one[0]])]
        lists = range(found.list_offsets[q], found.list_offsets[q + 1])
        spans = [slice(found.entry_offsets[a], found.entry_offsets[a + 1]) for a in lists]
        entries = [list(zip(found.entry_item[s].tolist(), found.entry_rank[s].tolist(), strict=True)) for s in spans]
        assert [(int(found.list_expert[a]), e) for a, e in zip(lists, entries, strict=True)] == wanted


def test_repeated_experts_of_pairs() -> None:
    chunk = build_chunk([Query(3, pairs=[(0, 1, 1.0, False)]), Query(3, pairs=[(1, 2, 2.0, True), (0, 2, 1.0, False)])])
    found = chunk.repeat_experts(np.array([2]))
    assert found.pair_offsets.tolist() == [0, 2, 6]
    assert found.pair_loser.tolist() == [1, 1, 2, 2, 2, 2]
    assert chunk.repeat_experts(np.array([0])).n_pairs == 0


def test_a_folder_without_users_still_has_names(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "r.tsv").write_text("a\tx\t1\nb\tx\t2\n")
    write_dataset(RatingsSource([tmp_path / "r.tsv"]), tmp_path / "d")
    assert Dataset.open(tmp_path / "d").select(audience="expert = 'b'").audience_size == 1


@pytest.mark.parametrize("words", ["(" * 3000 + "age < 30" + ")" * 3000, "not " * 3000 + "age < 30"])
def test_a_condition_too_deep_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match="at most 100 nested"):
        condition(words, PEOPLE)


@pytest.mark.parametrize("words", [" or ".join(["age < 30"] * 9000), f"age in ({', '.join(map(str, range(20000)))})"])
def test_a_long_condition_is_no_deep_one(words: str) -> None:
    table = pa.table({"age": [20, 40000]})
    assert condition(words, table).to_pylist() == [True, False]


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ("age < 12345678901234567890123", 2),
        (f"age < {'9' * 5000}", 2),
        ("age < -12345678901234567890123", 0),
        ("age = 9223372036854775807", 1),
    ],
)
def test_numbers_of_any_length(words: str, rows: int) -> None:
    table = pa.table({"age": [20, 2**63 - 1]}) if "=" in words else pa.table({"age": [20, 40]})
    assert pc.sum(condition(words, table)).as_py() == rows
