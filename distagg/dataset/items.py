"""Item ids to positions inside their query, with labels joined: two hash passes over rows of whole queries.

Positions follow first mention: declared items in their order, then items that somebody ranks. Judged items that
neither names are missed: only their labels stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from distagg.arrays import as_arrow, as_numpy, as_words
from distagg.dataset.clash import Clash
from distagg.types import INDEX, LABEL, NO_LABEL, OFFSET, Indices, Labels, Offsets


@dataclass(frozen=True, slots=True, eq=False)
class Mentions:
    """Items as rows name them: the query's position in the block, the id, the label or null."""

    query: NDArray[np.int64]  # (n,)
    item: pa.Array  # (n,) string, or a dictionary of such in the order of first mention
    label: pa.Array | None = None  # (n,) int32


@dataclass(frozen=True, slots=True, eq=False)
class NumberedItems:
    """The items of Q queries, and the positions that the ranked rows name."""

    offsets: Offsets  # (Q + 1,)
    ids: pa.StringArray  # (I,)
    labels: Labels  # (I,)
    missed_offsets: Offsets  # (Q + 1,)
    missed_labels: Labels  # (J,)
    position: Indices  # (n,) of the item of every ranked row in its query


def number_items(n_queries: int, declared: Mentions, ranked: Mentions, judged: Mentions) -> NumberedItems:
    """Positions of items in order of first mention.

    Raises
    ------
    Clash
        When an item has two different labels; the clash's query is the position in the block.
    """
    groups = (declared, ranked, judged)
    dictionary, word = _words([group.item for group in groups if len(group.item)])
    number, item_query, item_word = _number(groups, word, len(dictionary), n_queries)

    labels = _join_labels(groups, number, len(item_query), item_query, dictionary, item_word)
    last_ranked = len(declared.query) + len(ranked.query)
    n_known = int(number[:last_ranked].max(initial=-1)) + 1  # numbers follow first mention, judged items come last
    order, offsets = _by_query(item_query[:n_known], n_queries)
    position = number[len(declared.query) : last_ranked]
    if n_queries > 1:
        place = np.empty(n_known, dtype=INDEX)
        place[order] = np.arange(n_known) - offsets[item_query[:n_known][order]]
        position = place[position]
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
    """The words in order of first mention, and the number of each row's; items may come as such numbers already."""
    if not items:
        return as_words([]), np.zeros(0, INDEX)
    if any(pa.types.is_dictionary(item.type) for item in items):
        items = [item if pa.types.is_dictionary(item.type) else item.dictionary_encode() for item in items]
        words = pa.chunked_array(items).unify_dictionaries()
    else:
        words = pa.chunked_array(items, pa.string()).dictionary_encode()
    index = [as_numpy(chunk.indices) for chunk in words.chunks]
    return words.chunk(0).dictionary, index[0] if len(index) == 1 else np.concatenate(index)


def _number(
    groups: tuple[Mentions, ...], word: NDArray[np.int32], n_words: int, n_queries: int
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """The number of each row's (query, word) by first mention; query and word of each number."""
    if n_queries == 1:
        return word, np.zeros(n_words, dtype=OFFSET), np.arange(n_words)
    query = np.concatenate([group.query for group in groups])
    coded = as_arrow(query * max(n_words, 1) + word).dictionary_encode()
    item_query, item_word = np.divmod(as_numpy(coded.dictionary), max(n_words, 1))
    return as_numpy(coded.indices), item_query, item_word


def _by_query(item_query: NDArray[np.int64], n_queries: int) -> tuple[NDArray[np.intp], Offsets]:
    """The order that puts items of a query together, and the queries' offsets in it."""
    offsets = np.zeros(n_queries + 1, dtype=OFFSET)
    np.cumsum(np.bincount(item_query, minlength=n_queries), out=offsets[1:])
    return np.argsort(item_query, kind="stable"), offsets


def _join_labels(
    groups: tuple[Mentions, ...],
    number: NDArray[np.int32],
    n_numbers: int,
    item_query: NDArray[np.int64],
    dictionary: pa.StringArray,
    item_word: NDArray[np.int64],
) -> Labels:
    """One label for each number; NO_LABEL where nobody gives one."""
    labels = np.full(n_numbers, NO_LABEL, dtype=LABEL)
    at = 0
    for group in groups:
        rows = number[at : at + len(group.query)]
        at += len(group.query)
        if group.label is None:
            continue
        given = as_numpy(group.label.is_valid())
        rows, values = rows[given], as_numpy(group.label.drop_null())
        before = labels[rows]
        labels[rows] = values  # where two rows differ the last one stays, and the comparison below finds the others
        wrong = ((before != NO_LABEL) & (before != values)) | (labels[rows] != values)
        if wrong.any():
            bad = rows[np.argmax(wrong)]
            raise Clash("label", int(item_query[bad]), None, dictionary[int(item_word[bad])].as_py())
    return labels
