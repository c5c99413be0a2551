"""The chunk: whole queries (or whole experts of one query) as flat, sorted arrays.

Queries -> lists -> entries: each level has an array of offsets into the next. Lists of a query are sorted by expert,
entries of a list by rank. Kernels read only these arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from distagg.arrow import as_arrow, as_numpy, one_array
from distagg.covariates import DesignColumn
from distagg.errors import UsageError
from distagg.types import (
    INDEX,
    LABEL,
    NO_LABEL,
    OFFSET,
    PAIR_ORDER,
    PAIR_TIME,
    PAIRS_TABLE,
    RANK,
    Bools,
    Floats,
    Indices,
    Labels,
    Offsets,
    Times,
)

if TYPE_CHECKING:
    import scipy.sparse
    import sparse


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Chunk:
    """One block of work. Q queries, I items, L lists, E entries, P pairs, J missed judgements."""

    n_experts: int  # experts of the whole dataset, not only of this chunk
    positions: Offsets  # (Q,) position of the query in the dataset
    query_ids: pa.StringArray  # (Q,)
    parts: pa.StringArray  # (Q,) source file that the query came from
    item_offsets: Offsets  # (Q + 1,)
    item_ids: pa.StringArray  # (I,); zero-length when loaded without ids
    labels: Labels  # (I,) NO_LABEL where unknown
    missed_offsets: Offsets  # (Q + 1,)
    missed_labels: Labels  # (J,) labels of judged items that are not ranked (in no TREC run)
    list_offsets: Offsets  # (Q + 1,)
    list_expert: Indices  # (L,)
    entry_offsets: Offsets  # (L + 1,)
    entry_item: Indices  # (E,) position of the item inside its query
    entry_rank: Floats  # (E,) ascending inside a list
    entry_score: Floats  # (E,) the expert's own scores; zero-length if there are none
    pair_offsets: Offsets  # (Q + 1,)
    pair_expert: Indices  # (P,)
    pair_winner: Indices  # (P,)
    pair_loser: Indices  # (P,)
    pair_weight: Floats  # (P,)
    pair_tie: Bools  # (P,)
    pair_time: Times = field(default_factory=lambda: np.zeros(0, np.int64))  # (P,); zero-length if there are none
    pair_order: Offsets = field(default_factory=lambda: np.zeros(0, OFFSET))  # (P,) row of the source, if rows moved
    pair_covariates: Floats = field(default_factory=lambda: np.zeros((0, 0), RANK))  # (C, P)
    covariate_names: tuple[str, ...] = ()  # (C,) stored columns, see ``distagg.covariates``

    def __post_init__(self) -> None:
        # Read-only arrays protect shared data, and give kernels a single array type, so that each kernel is
        # compiled once for chunks from Parquet buffers and chunks built in memory.
        for value in self._values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def _values(self) -> Iterator[Any]:
        # Not via __slots__: Python 3.11.0 to 3.11.2 cannot read the weak reference slot.
        return (getattr(self, field.name) for field in fields(self))

    @property
    def n_queries(self) -> int:
        return len(self.item_offsets) - 1

    @property
    def n_items(self) -> int:
        return int(self.item_offsets[-1])

    @property
    def n_lists(self) -> int:
        return len(self.list_expert)

    @property
    def n_entries(self) -> int:
        return len(self.entry_item)

    @property
    def n_pairs(self) -> int:
        return len(self.pair_winner)

    @property
    def has_labels(self) -> bool:
        return bool((self.labels != NO_LABEL).any())

    @property
    def nbytes(self) -> int:
        return sum(int(getattr(value, "nbytes", 0)) for value in self._values())

    def grades(self) -> Labels:
        """Labels for training, shape (I,): a negative label becomes 0 (judged, not relevant), as in every metric."""
        negative = (self.labels < 0) & (self.labels != NO_LABEL)
        if not negative.any():
            return self.labels
        grades = np.where(negative, LABEL(0), self.labels)
        grades.setflags(write=False)
        return grades

    def item_query(self) -> Indices:
        """The query position of every item, shape (I,)."""
        return np.repeat(np.arange(self.n_queries, dtype=INDEX), np.diff(self.item_offsets))

    def entry_row(self) -> Offsets:
        """The chunk-wide item row of every entry, shape (E,)."""
        entries = np.diff(self.entry_offsets[self.list_offsets])
        rows: Offsets = np.repeat(self.item_offsets[:-1], entries)
        rows += self.entry_item
        return rows

    def select(self, queries: Bools) -> Chunk:
        """A chunk of the queries where the mask (Q,) is true."""
        if queries.all():
            return self
        keep = np.flatnonzero(queries)
        items, item_offsets = spans(self.item_offsets, keep)
        missed, missed_offsets = spans(self.missed_offsets, keep)
        lists, list_offsets = spans(self.list_offsets, keep)
        entries, entry_offsets = spans(self.entry_offsets, lists)
        pairs, pair_offsets = spans(self.pair_offsets, keep)
        return replace(
            self,
            positions=self.positions[keep],
            query_ids=self.query_ids.take(as_arrow(keep)),
            parts=self.parts.take(as_arrow(keep)),
            item_offsets=item_offsets,
            item_ids=self.item_ids.take(as_arrow(items)) if len(self.item_ids) else self.item_ids,
            labels=self.labels[items],
            missed_offsets=missed_offsets,
            missed_labels=self.missed_labels[missed],
            list_offsets=list_offsets,
            list_expert=self.list_expert[lists],
            entry_offsets=entry_offsets,
            entry_item=self.entry_item[entries],
            entry_rank=self.entry_rank[entries],
            entry_score=self.entry_score[entries] if len(self.entry_score) else self.entry_score,
            **self._taken(pairs, pair_offsets),
        )

    def _taken(self, pairs: np.ndarray, pair_offsets: Offsets) -> dict[str, Any]:
        """The arrays of some pairs, by their positions, with the offsets of queries among them."""
        names = ("pair_expert", "pair_winner", "pair_loser", "pair_weight", "pair_tie", "pair_time", "pair_order")
        arrays = {name: getattr(self, name) for name in names}
        taken = {name: values[pairs] if len(values) else values for name, values in arrays.items()}
        covariates = self.pair_covariates[:, pairs] if self.covariate_names else self.pair_covariates
        return {**taken, "pair_covariates": covariates, "pair_offsets": pair_offsets}

    def keep_pairs(self, kept: Bools) -> Chunk:
        """The chunk with the pairs where the mask (P,) is true; items and queries stay."""
        if kept.all():
            return self
        before = np.concatenate([[0], np.cumsum(kept)]).astype(OFFSET)
        return replace(self, **self._taken(np.flatnonzero(kept), before[self.pair_offsets]))

    def with_covariates(self, columns: Sequence[DesignColumn]) -> Chunk:
        """The chunk with columns made of the stored ones."""
        stored = dict(zip(self.covariate_names, self.pair_covariates, strict=True))
        if [column.columns for column in columns] == [(name,) for name in stored] and not any(
            column.level >= 0 for column in columns
        ):
            return replace(self, covariate_names=tuple(column.name for column in columns))
        values = np.empty((len(columns), self.n_pairs), dtype=RANK)
        for row, column in enumerate(columns):
            values[row] = column.values(stored)
        return replace(self, pair_covariates=values, covariate_names=tuple(column.name for column in columns))

    def sequence(self) -> Offsets:
        """The pairs in the order in which they happened, query by query: by time, then by row of the source."""
        query = np.repeat(np.arange(self.n_queries), np.diff(self.pair_offsets))
        keys = [key for key in (self.pair_order, self.pair_time) if len(key)]
        order: Offsets = np.lexsort((*keys, query)) if keys else np.arange(self.n_pairs)
        return order

    def without(self, experts: Collection[int]) -> Chunk:
        """The chunk without the lists of these experts; its items and queries stay."""
        if not experts:
            return self
        times = np.ones(self.n_experts, dtype=OFFSET)
        times[np.fromiter(experts, dtype=INDEX)] = 0
        return self.repeat_experts(times)

    def repeat_experts(self, times: Offsets) -> Chunk:
        """The chunk with each expert's lists repeated ``times`` (n_experts,) times; 0 drops them."""
        often, pair_often = times[self.list_expert], times[self.pair_expert]
        if (often == 1).all() and (pair_often == 1).all():
            return self
        lists = np.repeat(np.arange(self.n_lists), often)
        entries, entry_offsets = spans(self.entry_offsets, lists)
        pairs = np.repeat(np.arange(self.n_pairs), pair_often)
        return replace(
            self,
            list_offsets=np.concatenate([[0], np.cumsum(often)])[self.list_offsets].astype(OFFSET),
            list_expert=self.list_expert[lists],
            entry_offsets=entry_offsets,
            entry_item=self.entry_item[entries],
            entry_rank=self.entry_rank[entries],
            entry_score=self.entry_score[entries] if len(self.entry_score) else self.entry_score,
            **self._taken(pairs, np.concatenate([[0], np.cumsum(pair_often)])[self.pair_offsets].astype(OFFSET)),
        )

    def keep_items(self, kept: Bools) -> Chunk:
        """The chunk with the items where the mask (I,) is true; lists keep the ranks of the others.

        Pairs are not cut: a chunk that holds some is refused.
        """
        if self.n_pairs:
            raise UsageError("found pairs, expected lists: pairs cannot be cut to some of the items")
        before = np.concatenate([[0], np.cumsum(kept)]).astype(OFFSET)
        row = self.entry_row()
        entries = kept[row]
        entries_before = np.concatenate([[0], np.cumsum(entries)]).astype(OFFSET)
        item_offsets = before[self.item_offsets]
        first = np.repeat(item_offsets[:-1], np.diff(self.entry_offsets[self.list_offsets]))
        return replace(
            self,
            item_offsets=item_offsets,
            item_ids=self.item_ids.take(as_arrow(np.flatnonzero(kept))) if len(self.item_ids) else self.item_ids,
            labels=self.labels[kept],
            entry_offsets=entries_before[self.entry_offsets],
            entry_item=(before[row] - first)[entries].astype(INDEX),
            entry_rank=self.entry_rank[entries],
            entry_score=self.entry_score[entries] if len(self.entry_score) else self.entry_score,
        )

    def shallow(self, depth: int) -> Chunk:
        """The chunk with the first ``depth`` entries of each list; 0 keeps whole lists.

        Entries that tie with the last of these stay too, so that the order of items decides nothing. Items that are in
        no list any more stay in their query, as unlisted ones.
        """
        length = np.diff(self.entry_offsets)
        if depth <= 0 or (length <= depth).all():
            return self
        some = length > 0
        last = self.entry_offsets[:-1][some] + np.minimum(length[some], depth) - 1
        kept = self.entry_rank <= np.repeat(self.entry_rank[last], length[some])
        before = np.concatenate([[0], np.cumsum(kept)]).astype(OFFSET)
        return replace(
            self,
            entry_offsets=before[self.entry_offsets],
            entry_item=self.entry_item[kept],
            entry_rank=self.entry_rank[kept],
            entry_score=self.entry_score[kept] if len(self.entry_score) else self.entry_score,
        )

    def rank_matrix(self, query: int) -> scipy.sparse.csr_array:
        """Item x expert ranks of one query, as the papers' R; unlisted items are not stored."""
        import scipy.sparse

        first, last = self.list_offsets[query], self.list_offsets[query + 1]
        span = slice(self.entry_offsets[first], self.entry_offsets[last])
        experts = np.repeat(self.list_expert[first:last], np.diff(self.entry_offsets[first : last + 1]))
        shape = (int(self.item_offsets[query + 1] - self.item_offsets[query]), self.n_experts)
        return scipy.sparse.csr_array((self.entry_rank[span], (self.entry_item[span], experts)), shape=shape)

    def pair_tensor(self, query: int) -> sparse.COO:
        """Item x item x expert tensor of one query: entry (i, j, e) is 1 where expert e puts i over j."""
        import sparse

        coords: list[np.ndarray] = []
        for a_list in range(self.list_offsets[query], self.list_offsets[query + 1]):
            span = slice(self.entry_offsets[a_list], self.entry_offsets[a_list + 1])
            items, ranks = self.entry_item[span], self.entry_rank[span]
            over, under = np.nonzero(ranks[:, None] < ranks[None, :])
            expert = np.full(len(over), self.list_expert[a_list])
            coords.append(np.stack([items[over], items[under], expert]))
        size = int(self.item_offsets[query + 1] - self.item_offsets[query])
        where = np.concatenate(coords, axis=1) if coords else np.zeros((3, 0), dtype=INDEX)
        return sparse.COO(where, np.ones(where.shape[1]), shape=(size, size, self.n_experts))


def spans(offsets: Offsets, keep: np.ndarray) -> tuple[np.ndarray, Offsets]:
    """The flat positions inside the kept spans, and the offsets of these spans."""
    sizes = offsets[keep + 1] - offsets[keep]
    new = np.zeros(len(keep) + 1, dtype=OFFSET)
    np.cumsum(sizes, out=new[1:])
    flat = np.arange(new[-1]) + np.repeat(offsets[keep] - new[:-1], sizes)
    return flat, new


def _list_column(column: pa.ChunkedArray) -> tuple[Offsets, pa.Array]:
    """Offsets starting at 0 and the flat values of a list column, without copying the values."""
    array = one_array(column)
    offsets = as_numpy(array.offsets).astype(OFFSET)
    values = array.values.slice(offsets[0], offsets[-1] - offsets[0]) if len(offsets) else array.values
    return (offsets - offsets[0] if len(offsets) else np.zeros(1, dtype=OFFSET)), values


def _labels(values: pa.Array) -> Labels:
    if values.null_count == 0:
        return as_numpy(values)
    labels = np.full(len(values), NO_LABEL, dtype=LABEL)
    known = as_numpy(values.is_valid())
    labels[known] = as_numpy(values.drop_null())
    return labels


def chunk_from_tables(
    queries: pa.Table,
    lists: pa.Table | None,
    pairs: pa.Table | None,
    *,
    n_experts: int,
    first_query: int = 0,
) -> Chunk:
    """Build a chunk from rows of the dataset tables (see ``distagg.types``).

    ``first_query`` is the dataset position of the first row of ``queries``. Columns ``item`` of
    queries and ``score`` of lists may be absent.
    """
    n_queries = len(queries)
    label_offsets, label_values = _list_column(queries["label"])
    missed_offsets, missed_values = _list_column(queries["missed"])
    item_ids = pa.nulls(0, pa.string())
    if "item" in queries.column_names:
        item_ids = _list_column(queries["item"])[1]
    bounds = np.arange(first_query, first_query + n_queries + 1)

    list_offsets = np.zeros(n_queries + 1, dtype=OFFSET)
    list_expert, entry_offsets = np.zeros(0, dtype=INDEX), np.zeros(1, dtype=OFFSET)
    entry_item, entry_rank, entry_score = np.zeros(0, INDEX), np.zeros(0, RANK), np.zeros(0, RANK)
    if lists is not None and len(lists):
        list_offsets = np.searchsorted(as_numpy(one_array(lists["query"])), bounds).astype(OFFSET)
        list_expert = as_numpy(one_array(lists["expert"]))
        entry_offsets, items = _list_column(lists["item"])
        entry_item = as_numpy(items)
        entry_rank = as_numpy(_list_column(lists["rank"])[1])
        if "score" in lists.column_names:
            entry_score = as_numpy(_list_column(lists["score"])[1])
            if len(entry_score) != len(entry_item):
                entry_score = np.zeros(0, RANK)

    pair_offsets = np.zeros(n_queries + 1, dtype=OFFSET)
    pair_columns: list[Any] = [np.zeros(0, t) for t in (INDEX, INDEX, INDEX, RANK, np.bool_)]
    more: dict[str, Any] = {}
    if pairs is not None and len(pairs):
        pair_offsets = np.searchsorted(as_numpy(one_array(pairs["query"])), bounds).astype(OFFSET)
        names = ("expert", "winner", "loser", "weight", "tie")
        pair_columns = [as_numpy(one_array(pairs[name])) for name in names]
    if pairs is not None:
        more = _more_of_pairs(pairs)

    return Chunk(
        n_experts=n_experts,
        positions=bounds[:-1].astype(OFFSET),
        query_ids=one_array(queries["query"]),
        parts=one_array(queries["part"]),
        item_offsets=label_offsets,
        item_ids=item_ids,
        labels=_labels(label_values),
        missed_offsets=missed_offsets,
        missed_labels=_labels(missed_values),
        list_offsets=list_offsets,
        list_expert=list_expert,
        entry_offsets=entry_offsets,
        entry_item=entry_item,
        entry_rank=entry_rank,
        entry_score=entry_score,
        pair_offsets=pair_offsets,
        pair_expert=pair_columns[0],
        pair_winner=pair_columns[1],
        pair_loser=pair_columns[2],
        pair_weight=pair_columns[3],
        pair_tie=pair_columns[4],
        **more,
    )


def _more_of_pairs(pairs: pa.Table) -> dict[str, Any]:
    """Times, order and covariates of pairs, if the table has them."""
    more: dict[str, Any] = {}
    if PAIR_TIME.name in pairs.column_names:
        more["pair_time"] = as_numpy(one_array(pairs[PAIR_TIME.name]).cast(pa.int64()))
    if PAIR_ORDER.name in pairs.column_names:
        more["pair_order"] = as_numpy(one_array(pairs[PAIR_ORDER.name]))
    known = {*PAIRS_TABLE.names, PAIR_TIME.name, PAIR_ORDER.name}
    names = tuple(name for name in pairs.column_names if name not in known)
    if names:
        covariates = np.empty((len(names), len(pairs)), dtype=RANK)
        for row, name in enumerate(names):
            first = 0
            for piece in pairs[name].chunks:  # to their places at once, without a joined copy between
                covariates[row, first : first + len(piece)] = as_numpy(piece)
                first += len(piece)
        more |= {"pair_covariates": covariates, "covariate_names": names}
    return more
