"""Number items inside their query, join labels, sort lists; and report rows that contradict each other.

Item ids become positions in order of first mention, over rows of whole queries: declared items first, then ranked
items. Items that are only judged are missed: only their labels are kept. Lists are sorted by rank,
then item position; a list with scores but no ranks is ranked by score.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distagg.arrow import as_arrow, as_numpy, as_words
from distagg.errors import InputError
from distagg.storage.paths import Place
from distagg.types import INDEX, LABEL, NO_LABEL, OFFSET, RANK, Bools, Floats, Indices, Labels, Offsets

T = TypeVar("T", bound=np.generic)

BLOCK = 1 << 20  # mentions that are processed together
SPARSE = 8  # if there are more than this many possible values for each row, hashing is cheaper than a table of values

_MESSAGES = {
    "entry": ("item '{item}' again in the list of '{expert}' for query '{query}'", "each item once in a list"),
    "label": ("another label for item '{item}' of query '{query}'", "one label for each item of a query"),
    "line": ("item '{item}' of query '{query}' again", "one line for each item of a query"),
    "self": ("item '{item}' of query '{query}' paired with itself by '{expert}'", "two different items"),
}


@dataclass(eq=False)
class Clash(Exception):  # noqa: N818  # never leaves the package: it becomes an InputError
    """Rows that contradict each other, identified by codes, before their lines are known."""

    kind: Literal["entry", "label", "line", "self"]
    query: int  # code
    expert: int | None  # code
    item: str


class Locator(Protocol):
    @property
    def files(self) -> tuple[Place, ...]: ...

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]: ...


def clash_error(clash: Clash, source: Locator, query: str, expert: str | None) -> InputError:
    """The error with file and line of the second mention, and the location of the first."""
    template, expected = _MESSAGES[clash.kind]
    found = template.format(item=clash.item, query=query, expert=expert)
    places = source.locate(query, expert, clash.item)
    if not places:
        return InputError(str(source.files[0]) if source.files else "<table>", found=found, expected=expected)
    file, line = places[-1] if clash.kind == "label" else places[min(1, len(places) - 1)]
    if places[0] != (file, line):
        found += f" (first at {Path(places[0][0]).name}:{places[0][1]})"
    rows = "lines" if clash.kind == "line" else "rows"
    return InputError(file, line=line, found=found, expected=expected, remedy=f"remove one of the two {rows}")


@dataclass(frozen=True, slots=True, eq=False)
class Mentions:
    """Mentions of items in rows: the query's position in the block, the item's id, its label or null."""

    query: NDArray[np.int64]  # (n,)
    item: pa.Array  # (n,) string, or a dictionary of such
    label: pa.Array | None = None  # (n,) int32


@dataclass(frozen=True, slots=True, eq=False)
class NumberedItems:
    """The items of Q queries, and the item positions of the ranked rows."""

    offsets: Offsets  # (Q + 1,)
    ids: pa.StringArray  # (I,)
    labels: Labels  # (I,)
    missed_offsets: Offsets  # (Q + 1,)
    missed_labels: Labels  # (J,)
    position: Indices  # (n,) of the item of every ranked row in its query


def number_items(
    n_queries: int, declared: Mentions, ranked: Mentions, judged: Mentions, *, once: bool = False
) -> NumberedItems:
    """Positions of items in order of first mention; with ``once``, an item is declared at most once in its query.

    Raises
    ------
    Clash
        When an item has two different labels, or is declared twice; its query is the position in the block.
    """
    groups = (declared, ranked, judged)
    dictionary, word = _words([group.item for group in groups if len(group.item)])
    number, item_query, item_word = _number(groups, word, len(dictionary), n_queries)
    again = _first_again(number[: len(declared.query)]) if once else None
    if again is not None:
        item = dictionary[int(item_word[number[again]])].as_py()
        raise Clash("line", int(declared.query[again]), None, item)
    labels = _join_labels(groups, number, len(item_query), item_query, dictionary, item_word)
    last_ranked = len(declared.query) + len(ranked.query)
    n_known = int(number[:last_ranked].max(initial=-1)) + 1  # numbers follow first mention, judged items come last
    order, offsets = _by_query(item_query[:n_known], n_queries)
    position = number[len(declared.query) : last_ranked]
    if n_queries > 1:
        in_query = np.empty(n_known, dtype=INDEX)
        in_query[order] = np.arange(n_known) - offsets[item_query[:n_known][order]]
        position = in_query[position]
    missed = n_known + np.flatnonzero(labels[n_known:] != NO_LABEL)
    missed_order, missed_offsets = _by_query(item_query[missed], n_queries)
    return NumberedItems(
        offsets=offsets,
        ids=dictionary.take(as_arrow(item_word[:n_known][order])),
        labels=labels[:n_known][order],
        missed_offsets=missed_offsets,
        missed_labels=labels[missed][missed_order],
        position=position,
    )


def _words(items: list[pa.Array]) -> tuple[pa.StringArray, NDArray[np.int32]]:
    """The words, and each row's word number; items may be dictionary arrays already."""
    if not items:
        return as_words([]), np.zeros(0, INDEX)
    items = [item if pa.types.is_dictionary(item.type) else item.dictionary_encode() for item in items]
    words = pa.chunked_array(items).unify_dictionaries()
    index = [as_numpy(chunk.indices) for chunk in words.chunks]
    return words.chunk(0).dictionary, index[0] if len(index) == 1 else np.concatenate(index)


def _number(
    groups: tuple[Mentions, ...], word: NDArray[np.int32], n_words: int, n_queries: int
) -> tuple[Indices, NDArray[np.integer], NDArray[np.integer]]:
    """Number the (query, word) of each row in order of first mention; and the query and word of each number."""
    if n_queries == 1:
        number, item_word = by_mention(word, n_words)
        return number, np.zeros(len(item_word), dtype=OFFSET), item_word
    query = np.concatenate([group.query for group in groups])
    number, cell = by_mention(query * n_words + word, n_queries * n_words)
    return number, *np.divmod(cell, max(n_words, 1))


def by_mention(value: NDArray[np.integer], size: int) -> tuple[Indices, NDArray[np.integer]]:
    """Number the distinct values, which are below ``size``, in order of first mention; and the value of each number.

    >>> by_mention(np.array([5, 2, 5, 3]), 6)
    (array([0, 1, 0, 2], dtype=int32), array([5, 2, 3]))
    """
    if size > SPARSE * len(value):
        coded = as_arrow(value).dictionary_encode()
        return as_numpy(coded.indices), as_numpy(coded.dictionary)
    first: NDArray[np.signedinteger] = np.full(size, len(value), dtype=INDEX if len(value) < 2**31 else OFFSET)
    for end in range(len(value), 0, -BLOCK):  # backwards, so that the first mention is written last
        start = max(end - BLOCK, 0)
        first[value[start:end][::-1]] = np.arange(start, end, dtype=first.dtype)[::-1]
    known = np.flatnonzero(first < len(value))
    known = known[np.argsort(first[known])]
    number = first.astype(INDEX, copy=False)
    number[known] = np.arange(len(known), dtype=INDEX)
    return number[value], known


def _first_again(number: Indices) -> int | None:
    """The first row whose number occurred before, or None; numbers follow first mention."""
    new = np.maximum.accumulate(number)
    again = np.flatnonzero(number[1:] <= new[:-1])
    return int(again[0]) + 1 if len(again) else None


def _by_query(item_query: NDArray[np.integer], n_queries: int) -> tuple[NDArray[np.intp], Offsets]:
    """The order that sorts items by query, and the queries' offsets in it."""
    offsets = np.zeros(n_queries + 1, dtype=OFFSET)
    np.cumsum(np.bincount(item_query, minlength=n_queries), out=offsets[1:])
    return np.argsort(item_query, kind="stable"), offsets


def _join_labels(
    groups: tuple[Mentions, ...],
    number: NDArray[np.int32],
    n_numbers: int,
    item_query: NDArray[np.integer],
    dictionary: pa.StringArray,
    item_word: NDArray[np.integer],
) -> Labels:
    """One label for each number, or NO_LABEL."""
    labels = np.full(n_numbers, NO_LABEL, dtype=LABEL)
    at = 0
    for group in groups:
        rows = number[at : at + len(group.query)]
        at += len(group.query)
        if group.label is None:
            continue
        labelled = as_numpy(group.label.is_valid())
        rows, values = rows[labelled], as_numpy(group.label.drop_null())
        before = labels[rows]
        labels[rows] = values  # if two rows differ, the last one wins, and the comparison below finds the others
        wrong = ((before != NO_LABEL) & (before != values)) | (labels[rows] != values)
        if wrong.any():
            bad = rows[np.argmax(wrong)]
            raise Clash("label", int(item_query[bad]), None, dictionary[int(item_word[bad])].as_py())
    return labels


@dataclass(frozen=True, slots=True, eq=False)
class OrderedLists:
    position: Indices  # (E,) item
    rank: Floats  # (E,) ascending inside a list
    score: Floats | None  # (E,)
    ties: int  # entries that share their rank with another entry of their list


def find_repeated(starts: NDArray[np.integer], position: Indices) -> int | None:
    """The first row whose item occurred in its list before."""
    n = len(position)
    width = int(position.max(initial=0)) + 1
    first: NDArray[np.integer] = np.arange(len(starts)) * width  # cell of the list's item 0
    if len(starts) * width < 2**31:
        first = first.astype(np.int32)  # sorting half as many bytes takes half the time
    cell = np.repeat(first, np.diff(starts, append=n)) + position
    ordered = np.sort(cell)  # vectorised by numpy: much faster than hashing
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(repeated):
        return None
    rows = np.flatnonzero(np.isin(cell, repeated))
    _, mentioned = np.unique(cell[rows], return_index=True)
    return int(np.delete(rows, mentioned)[0])


def order_lists(starts: NDArray[np.integer], position: Indices, rank: Floats, score: Floats | None) -> OrderedLists:
    """Sort every list by rank, then item position.

    Parameters
    ----------
    starts : (L,)
        First row of every list.
    rank : (E,)
        NaN in lists that are ranked by score: rank = 1 + number of strictly larger scores.

    >>> lists = order_lists(np.array([0]), np.arange(3, dtype=np.int32), np.full(3, np.nan), np.array([5.0, 7.0, 5.0]))
    >>> lists.position.tolist(), lists.rank.tolist(), lists.ties
    ([1, 0, 2], [1.0, 2.0, 2.0], 2)
    """
    n = len(position)
    if n == 0:
        return OrderedLists(position, rank, score, 0)
    lengths = np.diff(starts, append=n)
    by_score = _ranked_by_score(starts, rank)
    if by_score is None:
        key = rank
    elif by_score.all() and score is not None:
        key = -score
    else:
        assert score is not None
        key = np.where(np.repeat(by_score, lengths), -score, rank)
    if by_score is not None and np.isnan(key).any():
        raise InputError(
            "<list>", found="a list where some entries have only a rank, others only a score", expected="one of the two"
        )
    order = _by_key(starts, lengths, key)
    if order is not None:
        key, position = key[order], position[order]
        score = None if score is None else score[order]
    opens = np.empty(n, dtype=bool)  # where a run of equal ranks begins
    opens[0] = True
    np.not_equal(key[1:], key[:-1], out=opens[1:])
    opens[starts] = True
    tied = np.flatnonzero(~(opens & np.append(opens[1:], True)))
    opening = tied[opens[tied]]
    run = np.searchsorted(opening, tied, side="right") - 1
    sorted_ties = _by_position(tied, run, position)
    if sorted_ties is not None:
        score = None if score is None else _moved(score, sorted_ties, tied)
        position = _moved(position, sorted_ties, tied)
    ranks = key
    if by_score is not None:
        ranks = np.arange(1, n + 1, dtype=RANK)
        ranks -= np.repeat(starts, lengths)
        ranks[tied] = ranks[opening[run]]
        if not by_score.all():
            ranks = np.where(np.repeat(by_score, lengths), ranks, key)
    return OrderedLists(position, ranks, score, len(tied))


def _ranked_by_score(starts: NDArray[np.integer], rank: Floats) -> Bools | None:
    """The lists with a missing rank; None if there are none."""
    missing = np.isnan(rank)
    return np.logical_or.reduceat(missing, starts) if missing.any() else None


def _by_key(starts: NDArray[np.integer], lengths: NDArray[np.integer], key: Floats) -> NDArray[np.intp] | None:
    """The order of all rows by key inside their list, or None if all lists are sorted already."""
    falls = key[1:] < key[:-1]
    falls[starts[1:] - 1] = False  # from the last entry of a list to the first of the next
    if not falls.any():
        return None
    which = np.zeros(len(starts), dtype=bool)
    which[np.searchsorted(starts, np.flatnonzero(falls), side="right") - 1] = True
    rows = np.flatnonzero(np.repeat(which, lengths))
    lists = np.repeat(np.arange(len(starts)), lengths)[rows]
    order = np.arange(len(key))
    order[rows] = rows[np.lexsort((key[rows], lists))]
    return order


def _by_position(tied: NDArray[np.intp], run: NDArray[np.intp], position: Indices) -> NDArray[np.intp] | None:
    """Tied rows by run and item position, or None if they are sorted already."""
    at = position[tied]
    cell = run * (int(at.max(initial=0)) + 1) + at  # unique: an item occurs once in a list
    return tied[np.argsort(cell)] if (cell[1:] < cell[:-1]).any() else None


def _moved(values: NDArray[T], rows: NDArray[np.intp], to: NDArray[np.intp]) -> NDArray[T]:
    """The values with some rows moved to other places."""
    moved = values.copy()
    moved[to] = values[rows]
    return moved
