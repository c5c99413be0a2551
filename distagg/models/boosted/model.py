"""lambdamart: boosted trees on features of every expert's list. Burges 2010.

LightGBM (an optional extra) grows the trees. They are saved as plain arrays, so ranking needs no LightGBM. The features
are those of the CRF (how much an item won and lost in each expert's list) and the scores of a few unsupervised models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import UsageError
from distagg.models.base import Model, param, sum_entries
from distagg.models.boosted.kernels import Trees, add_trees
from distagg.models.lists import PAIR_FUNCTIONS
from distagg.models.pairs import won_and_lost, won_and_lost_names
from distagg.models.pool import LEARNS_FROM_POOL, training_pool_param
from distagg.models.registry import model_named
from distagg.models.rounds import Params
from distagg.models.scorers.features import KINDS, Features, FeatureSettings, chunk_features
from distagg.models.scorers.kernels import Rows
from distagg.models.trained import validation_param
from distagg.models.unjudged import unjudged_param
from distagg.types import OFFSET, Bools, Floats, Offsets

PAIRS, RECIPROCAL = ("log", "binary"), 10.0
UNLABELLED = ("rrf", "borda", "mpm")
DIGITS = 6  # decimals of their scores: trees must not tell apart what rounding does
ROUNDING = 1e-12  # scores that differ by less than this share of the largest are equal
COMMON = (*UNLABELLED, "lists")
LARGE = 1000  # items of a query: from here on every tree takes long


@dataclass(frozen=True, kw_only=True)
class LambdaMart(Model):
    """Experts unseen in training are ignored."""

    name: ClassVar[str] = "lambdamart"
    summary: ClassVar[str] = "boosted trees on every expert's list, grown by LightGBM (an extra) from labels"
    paper: ClassVar[str] = "Burges 2010; Ke et al. 2017"
    cost: ClassVar[str] = "entries + items x trees"
    supervised: ClassVar[bool] = True
    positive: ClassVar[bool] = True
    package: ClassVar[str] = "lightgbm"
    learner: ClassVar[str] = "boosted"
    pooling: ClassVar[str] = LEARNS_FROM_POOL
    unseen: ClassVar[float] = -np.inf  # marks unseen experts: the parameters of known ones are finite

    features: str = param(
        "won",
        "what lists say of items: won (what was won and lost, as the CRF takes it), svd, borda or cp, as lambdarank",
        choices=("won", *(kind for kind in KINDS if kind != "sums")),  # won has them
    )
    pairs: str = param("log", "how two ranks become a preference, for svd and cp", choices=(*PAIR_FUNCTIONS, "all"))
    rank: int = param(1, "how many singular triplets, or factors of cp", least=1)
    trees: int = param(300, "trees to grow; those up to the best value on the queries held out are kept", least=1)
    validation: str = validation_param("trees", limit=f", and half of the queries have at most {LARGE:,} items")
    leaves: int = param(7, "leaves of a tree", least=2)
    rate: float = param(0.05, "how much of each tree is added", above=0.0)
    least: int = param(50, "least number of items in a leaf, or a hundredth of all items where that is fewer", least=1)
    columns: float = param(0.3, "share of the columns that each tree may use", above=0.0)
    items: float = param(0.7, "share of the items that a tree learns from", above=0.0)
    unjudged: str = unjudged_param("zero", most=0)
    pool: int = training_pool_param(200)
    mode: str = param(
        "serial",
        "serial (in one process: the same bits anywhere) or spread (over the workers of the cluster, by LightGBM's "
        "own Dask interface: for data that do not fit in one; bits follow the number of workers)",
        choices=("serial", "spread"),
    )
    plain: bool = param(
        False, "allow mode=spread over several machines, although LightGBM's own connections are not encrypted"
    )
    seed: int = param(0, "seed of all random draws", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("columns", "items"):
            if getattr(self, key) > 1.0:
                share = getattr(self, key)
                raise UsageError(f"parameter {key} of {self.name}: found {share}, expected a share, at most 1")

    def dense(self, chunk: Chunk, kept: Bools | None = None) -> Floats:
        """Features of the K kept items (or all) as LightGBM takes them: experts x columns, then COMMON; (K, F)."""
        kept = np.ones(chunk.n_items, dtype=np.bool_) if kept is None else kept
        said, owners = self._said(chunk), self._owners(chunk)
        width, common = said.values.shape[1], _common(chunk)[kept]
        table = np.zeros((len(common), owners * width + common.shape[1]))
        table[:, owners * width :] = common
        item = np.repeat(chunk.item_offsets[:-1], np.diff(said.offsets)) + said.item
        entries = np.flatnonzero(kept[item])
        row = (np.cumsum(kept) - 1)[item[entries]]
        for n in range(width):
            table[row, said.expert[entries] * width + n] = said.values[entries, n]
        return table

    def column_names(self, experts: tuple[str, ...]) -> list[str]:
        """The columns of ``dense``."""
        won = self.features == "won"
        names = won_and_lost_names(PAIRS, RECIPROCAL)[1:] if won else self._settings.names
        owners = ("all",) if not won and self._settings.shared else experts
        return [f"{owner}:{name}" for owner in owners for name in names] + list(COMMON)

    @property
    def _settings(self) -> FeatureSettings:
        return FeatureSettings(self.features, self.pairs, self.rank)

    def _owners(self, chunk: Chunk) -> int:
        """The number of sets of columns: one for every expert, or one that all experts share."""
        return 1 if self.features != "won" and self._settings.shared else chunk.n_experts

    def _said(self, chunk: Chunk) -> Features:
        """Features of entries, without the missing-expert bias: trees can split on missing experts by themselves."""
        if self.features == "won":
            values = won_and_lost(self.name, chunk, PAIRS, RECIPROCAL)[:, 1:]
            expert = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
            offsets = chunk.entry_offsets[chunk.list_offsets]
            return Features(offsets, chunk.entry_item, expert, np.ascontiguousarray(values))
        said = chunk_features(chunk, self._settings)
        return replace(said, values=np.ascontiguousarray(said.values[:, :-1]))

    def score(self, chunk: Chunk, params: Params) -> Floats:
        score: Floats = self._walk(chunk, params, 1)[0]
        return score

    def stages(self, chunk: Chunk, params: Params) -> Floats:
        """Scores after each tree, shape (trees, I)."""
        return self._walk(chunk, params, len(params["tree_starts"]) - 1)

    def _walk(self, chunk: Chunk, params: Params, stages: int) -> Floats:
        said = self._said(chunk)
        column, places, common_places, columns = self._compact(chunk, params, said.values.shape[1])
        threshold, left, right = params["tree_nodes"][1:]
        score = np.zeros((stages, chunk.n_items))
        starts = params["tree_starts"].astype(OFFSET)
        trees = Trees(starts, column, threshold, left.astype(OFFSET), right.astype(OFFSET))
        rows = Rows(chunk.item_offsets, said.offsets, said.item, said.expert, said.values)
        add_trees(trees, rows, places, _common(chunk), common_places, columns, score)
        return score

    def _compact(self, chunk: Chunk, params: Params, width: int) -> tuple[Offsets, Offsets, Offsets, int]:
        """Renumber the columns that trees use, from 0 on; columns that no tree uses get -1.

        Returns the new numbers of the columns that nodes ask for, of the columns of each expert, and of COMMON; and
        how many columns are used.
        """
        asked = params["tree_nodes"][0].astype(OFFSET)
        used = np.unique(asked[asked >= 0])
        number = np.full(int(params["tree_columns"][0]) + 1, -1, dtype=OFFSET)  # the last one is for leaves
        number[used] = np.arange(len(used))
        owners = self._owners(chunk)
        row = params["expert_row"] if owners == chunk.n_experts else np.zeros(1)
        known = np.isfinite(row)
        places = np.full((owners, width), -1, dtype=OFFSET)
        places[known] = number[(row[known].astype(OFFSET) * width)[:, None] + np.arange(width)]
        return number[asked], places, number[-1 - len(COMMON) : -1].copy(), len(used)


def _common(chunk: Chunk) -> Floats:
    """Scores of unsupervised models, standardised in the query, and the share of lists that hold the item; (I, C)."""
    scores = [np.round(standardised(chunk, model_named(name).score(chunk, {})), DIGITS) + 0.0 for name in UNLABELLED]
    lists = np.repeat(np.maximum(np.diff(chunk.list_offsets), 1), np.diff(chunk.item_offsets))
    share = sum_entries(chunk, np.ones(chunk.n_entries)) / lists
    return np.stack([*scores, share], axis=1)


def standardised(chunk: Chunk, score: Floats) -> Floats:
    """Scores with mean 0 and deviation 1 in every query; zeros where all are equal, up to rounding."""
    owner, size = chunk.item_query(), np.maximum(np.diff(chunk.item_offsets), 1)
    centred = score - (np.bincount(owner, score, chunk.n_queries) / size)[owner]
    deviation = np.sqrt(np.bincount(owner, centred**2, chunk.n_queries) / size)
    largest = np.zeros(chunk.n_queries)
    np.maximum.at(largest, owner, np.abs(score))
    apart = deviation > ROUNDING * largest
    return np.asarray(np.where(apart[owner], centred, 0.0) / np.where(apart, deviation, 1.0)[owner])
