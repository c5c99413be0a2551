"""Features of items: a short row of numbers for every item of an expert's list.

Volkovs & Zemel 2014, section 3.5.1.
There is one row for every entry (item, expert) and none where an expert omits the item, so features take O(entries)
memory and time. The last number of a row belongs to the missing-expert bias, see ``Features``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError, unknown
from distagg.models.compared import by_expert
from distagg.models.lists import PAIR_FUNCTIONS, mid_positions, sum_by_item
from distagg.models.pairs import pair_function, rank_values, won_and_lost
from distagg.models.scorers.cp import fill_factors
from distagg.models.scorers.svd import Groups, SortedLists, triplets
from distagg.types import INDEX, NO_LABEL, OFFSET, Bools, Floats, Indices, Offsets

KINDS = ("svd", "borda", "cp", "sums")
ALL = ("binary", "normalised", "log")  # difference has the vectors of normalised, and singular values without bound
STEPS, TOLERANCE = 1000, 1e-12
CP_STEPS, CP_TOLERANCE = 200, 1e-9


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """Which features to compute.

    ``rank`` is the rank of svd and cp; ``pairs`` is the pair function of svd, cp and sums. With ``combined``, all
    experts of a query share one set of features; cp, which decomposes the matrices of all experts together, always
    does. sums are how much each item won and lost in the pairs of an expert: the potentials of crf, and the only
    features of raw pairs. The singular values of ``difference`` are in ranks; those of the other pair functions are at
    most 1 for one list.
    """

    kind: str = "svd"
    pairs: str = "log"
    rank: int = 1
    combined: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("kind of features", self.kind, KINDS)
        if self.pairs not in (*PAIR_FUNCTIONS, "all"):
            raise unknown("pair function", self.pairs, (*PAIR_FUNCTIONS, "all"))
        if self.rank < 1:
            raise UsageError(f"found rank {self.rank} of {self.kind} features, expected a whole number from 1 on")

    @property
    def shared(self) -> bool:
        """Whether all experts have one set of features together."""
        return self.combined or self.kind == "cp"

    @property
    def functions(self) -> tuple[str, ...]:
        return ALL if self.pairs == "all" else (self.pairs,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, without the indicator of missing experts."""
        if self.kind == "borda":
            return ("points",)
        if self.kind == "sums":
            return tuple(
                f"{f}_{end}" if self.pairs == "all" else end for f in self.functions for end in ("won", "lost")
            )
        letters = "uv" if self.kind == "cp" else "usv"
        single = [f"{letter}{t + 1}" for letter in letters for t in range(self.rank)]
        return tuple(f"{f}_{name}" if self.pairs == "all" else name for f in self.functions for name in single)

    @property
    def width(self) -> int:
        """Numbers in a row, the indicator's included."""
        return len(self.names) + 1


@dataclass(frozen=True, slots=True)
class Features:
    """Rows of a chunk's queries, one after the other.

    The last column is -1. With weight b, an expert that lists an item subtracts b from its score. Up to a constant that
    all items of a query share, this equals the missing-expert bias of the papers, which adds b to unlisted items.
    """

    offsets: Offsets  # (Q + 1,)
    item: Indices  # (N,) position of the item in its query
    expert: Indices  # (N,) whose weights the row takes; 0 when all share them
    values: Floats  # (N, width)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"offsets": self.offsets, "item": self.item, "expert": self.expert, "values": self.values}


def chunk_features(chunk: Chunk, settings: FeatureSettings) -> Features:
    """The features of a chunk."""
    if chunk.n_pairs and settings.kind != "sums":
        raise UsageError(f"features {settings.kind} are those of lists, but the data are pairs; choose features=sums")
    raw, chunk = chunk, by_expert(chunk)
    values = np.zeros((chunk.n_items if settings.shared else chunk.n_entries, settings.width))
    values[:, -1] = -1.0
    if settings.kind == "borda":
        values[:, 0] = _points(chunk, settings.combined)
    elif settings.kind == "sums":
        sums = won_and_lost("features", raw, settings.functions, 0.0)[:, 1:]
        values[:, :-1] = np.stack([_mean(chunk, column) for column in sums.T], axis=1) if settings.shared else sums
    elif settings.kind == "cp":
        values[:, :-1] = np.concatenate([_factors(chunk, f, settings) for f in settings.functions], axis=1)
    else:
        for n, function in enumerate(settings.functions):
            _fill_triplets(chunk, function, settings, values, 3 * settings.rank * n)
    if settings.shared:
        return _of_listed_items(chunk, values)
    expert = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
    return _frozen(Features(chunk.entry_offsets[chunk.list_offsets], chunk.entry_item, expert, values))


def kept_features(chunk: Chunk, whole: Features, kept: Bools) -> Features:
    """The rows of the items that the mask ``kept`` (I,) selects, numbered as in ``chunk.keep_items(kept)``."""
    owner = np.repeat(np.arange(chunk.n_queries), np.diff(whole.offsets))
    item = chunk.item_offsets[owner] + whole.item
    rows, before = kept[item], np.concatenate([[0], np.cumsum(kept)])
    place = (before[item] - before[chunk.item_offsets[owner]])[rows].astype(INDEX)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner[rows], minlength=chunk.n_queries))]).astype(OFFSET)
    return _frozen(Features(offsets, place, whole.expert[rows], whole.values[rows]))


def _points(chunk: Chunk, combined: bool) -> Floats:
    """The share of the query's items that each entry is ranked above; if combined, the mean over the query's lists."""
    lists = np.diff(chunk.list_offsets)
    size = np.repeat(np.repeat(np.diff(chunk.item_offsets), lists), np.diff(chunk.entry_offsets))
    points: Floats = (size - mid_positions(chunk.entry_offsets, chunk.entry_rank)) / np.maximum(size, 1)
    return _mean(chunk, points) if combined else points


def _mean(chunk: Chunk, values: Floats) -> Floats:  # (E,) -> (I,)
    """Sum of an item's values over the number of its query's lists."""
    lists = np.repeat(np.maximum(np.diff(chunk.list_offsets), 1), np.diff(chunk.item_offsets))
    return sum_by_item(chunk.entry_row(), values, chunk.n_items) / lists


def _values(chunk: Chunk, function: str) -> Floats:
    """The value of each entry's rank under the pair function."""
    code = pair_function("features", function, chunk)
    nobody = np.zeros(chunk.n_lists, dtype=OFFSET)
    return rank_values(chunk, nobody, code)[0]


def _fill_triplets(chunk: Chunk, function: str, settings: FeatureSettings, out: Floats, at: int) -> None:
    """Fill U, singular values and V from column ``at`` on: by entry, or by item if all lists of a query share them."""
    value, sizes, n_lists = _values(chunk, function), np.diff(chunk.item_offsets), chunk.n_lists
    if settings.shared:
        lists, rows, scale, place = chunk.list_offsets, chunk.item_offsets, sizes, chunk.entry_item
    else:
        starts = np.repeat(chunk.entry_offsets[:-1], np.diff(chunk.entry_offsets))
        lists, rows = np.arange(n_lists + 1, dtype=OFFSET), chunk.entry_offsets
        scale = np.repeat(sizes, np.diff(chunk.list_offsets))
        place = (np.arange(chunk.n_entries) - starts).astype(INDEX)
    sorted_lists = SortedLists(function == "binary", chunk.entry_offsets, _read_only(place), value)
    groups = Groups(_read_only(lists), rows, scale, not settings.shared)
    triplets(sorted_lists, groups, STEPS, TOLERANCE, settings.rank, out, at)


def _factors(chunk: Chunk, function: str, settings: FeatureSettings) -> Floats:
    """The cp factors U and V by item, starting from the singular triplets of the sum of the query's matrices."""
    parts = settings.rank
    start = np.zeros((chunk.n_items, 3 * parts))
    _fill_triplets(chunk, function, settings, start, 0)
    rows = np.delete(start, np.s_[parts : 2 * parts], axis=1)
    lists = SortedLists(function == "binary", chunk.entry_offsets, chunk.entry_item, _values(chunk, function))
    weight, taken = np.zeros((chunk.n_queries, parts)), np.zeros(chunk.n_queries, dtype=OFFSET)
    fill_factors(lists, chunk.item_offsets, chunk.list_offsets, CP_STEPS, CP_TOLERANCE, rows, weight, taken)
    return rows


def _of_listed_items(chunk: Chunk, values: Floats) -> Features:
    """One row for every item that is in any list."""
    listed = np.zeros(chunk.n_items, dtype=np.bool_)
    listed[chunk.entry_row()] = True
    owner = chunk.item_query()
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner[listed], minlength=chunk.n_queries))]).astype(OFFSET)
    item = (np.arange(chunk.n_items) - chunk.item_offsets[owner])[listed].astype(INDEX)
    return _frozen(Features(offsets, item, np.zeros(len(item), dtype=INDEX), values[listed]))


def _read_only(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def _frozen(features: Features) -> Features:
    for array in features.arrays().values():
        array.setflags(write=False)
    return features


def feature_table(chunk: Chunk, experts: tuple[str, ...], settings: FeatureSettings) -> pa.Table:
    """A wide Arrow table: query, item, for every expert its features and ``missing``, and the label.

    Columns are named ``expert:feature``; where the expert leaves the item out its features are 0 and ``missing`` is 1.
    Features that all experts share belong to an expert named ``all``.
    """
    features = chunk_features(chunk, settings)
    owners = ("all",) if settings.shared else experts
    rows = np.repeat(chunk.item_offsets[:-1], np.diff(features.offsets)) + features.item
    dense = np.zeros((len(owners), settings.width, chunk.n_items))
    dense[:, -1] = 1.0
    dense[features.expert, :, rows] = features.values * np.append(np.ones(settings.width - 1), 0.0)
    columns: dict[str, Any] = {
        "query": chunk.query_ids.take(pa.array(chunk.item_query())),
        "item": chunk.item_ids,
    }
    for e, owner in enumerate(owners):
        for f, name in enumerate((*settings.names, "missing")):
            columns[f"{owner}:{name}"] = dense[e, f]
    columns["label"] = pa.array(chunk.labels, pa.int32(), mask=chunk.labels == NO_LABEL)
    return pa.table(columns)
