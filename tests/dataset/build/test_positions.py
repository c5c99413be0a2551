"""Ordering lists against sorting tuples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distagg.dataset.build.positions import by_mention, find_repeated, order_lists
from distagg.errors import InputError

values = st.sampled_from([-1.0, 0.0, 1.0, 1.5, 3.0])
lists = st.lists(st.lists(st.tuples(st.integers(0, 9), values, values), min_size=1, max_size=8), max_size=6)


def _arrays(given_lists):  # type: ignore[no-untyped-def]
    starts = np.cumsum([0] + [len(entries) for entries in given_lists])[:-1]
    flat = [entry for entries in given_lists for entry in entries]
    position = np.array([entry[0] for entry in flat], dtype=np.int32)
    return starts, position, np.array([e[1] for e in flat]), np.array([e[2] for e in flat])


@given(st.lists(st.integers(0, 9)), st.sampled_from([10, 10_000]))
def test_numbers_follow_first_mention(values: list[int], size: int) -> None:
    expected = {value: number for number, value in enumerate(dict.fromkeys(values))}
    number, value = by_mention(np.array(values, dtype=np.int64), size)
    assert number.tolist() == [expected[value] for value in values]
    assert value.tolist() == list(expected)


@given(lists)
def test_repeated_items(given_lists: list[list[tuple[int, float, float]]]) -> None:
    starts, position, _, _ = _arrays(given_lists)
    expected, row = None, 0
    for entries in given_lists:
        seen: set[int] = set()
        for item, _, _ in entries:
            if item in seen and expected is None:
                expected = row
            seen.add(item)
            row += 1
    assert find_repeated(starts, position) == expected


@given(lists, st.lists(st.booleans(), min_size=6, max_size=6))
def test_order(given_lists: list[list[tuple[int, float, float]]], by_score: list[bool]) -> None:
    given_lists = [
        list({item: (item, rank, score) for item, rank, score in entries}.values()) for entries in given_lists
    ]
    starts, position, rank, score = _arrays(given_lists)
    expected, ties = [], 0
    for at, entries in enumerate(given_lists):
        if by_score[at]:
            entries = [(i, 1.0 + sum(other > s for _, _, other in entries), s) for i, _, s in entries]
            rank[starts[at] : starts[at] + len(entries)] = np.nan
        expected += sorted(entries, key=lambda entry: (entry[1], entry[0]))
        ties += sum(sum(r == other for _, other, _ in entries) > 1 for _, r, _ in entries)
    found = order_lists(starts, position, rank, score)
    assert found.score is not None
    assert list(zip(found.position, found.rank, found.score, strict=True)) == expected
    assert found.ties == ties


def test_a_list_is_ranked_one_way() -> None:
    with pytest.raises(InputError, match="only a rank"):
        order_lists(np.array([0]), np.arange(2, dtype=np.int32), np.array([1.0, np.nan]), np.array([np.nan, 2.0]))
