"""Models of Volkovs & Zemel 2014 by the letter of the paper, where those of the package depart from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models import Model, Params, model_named
from distagg.models.agreement import Agreement
from distagg.models.base import make
from distagg.models.mpm.model import ThetaSupMpm
from distagg.models.rounds import Stage
from distagg.models.scorers.scorer import LambdaRank
from distagg.types import Floats, Labels


@dataclass(frozen=True, kw_only=True)
class PlainSvd(LambdaRank):
    """lambdarank on singular vectors as they are, of length 1 (section 3.5.1); lambdarank's have length sqrt(items).

    All items of a query have the same singular values there, so that these order nothing.
    """

    name: ClassVar[str] = "plain_svd"

    def prepare(self, chunk: Chunk) -> dict[str, np.ndarray]:
        arrays = super().prepare(chunk)
        length = 1.0 / np.sqrt(np.repeat(np.diff(chunk.item_offsets), np.diff(arrays["offsets"])))
        by_letter = {"u": length, "s": np.zeros_like(length), "v": length, "m": np.ones_like(length)}
        values = arrays["values"] * np.stack([by_letter[name[0]] for name in self.weight_columns], axis=1)
        values.setflags(write=False)
        return {**arrays, "values": values}


@dataclass(frozen=True, slots=True, eq=False)
class CountAgreement(Agreement):
    """The distance of section 3.4 between labels and counts of preferences: a pair weighs its difference of ranks."""

    def shares(self, chunk: Chunk, labels: Labels) -> Floats:
        return count_shares(chunk, labels)


@dataclass(frozen=True, kw_only=True)
class CountAdherence(ThetaSupMpm):
    """theta_sup_mpm, its adherence the share of counts, not of pairs, that agrees with labels."""

    name: ClassVar[str] = "count_adherence"

    def learning(self, n_experts: int, params: Params) -> Stage:
        return CountAgreement(self, params, "expert_theta", self.scale == "chance", self.unjudged)


def count_shares(chunk: Chunk, labels: Labels) -> Floats:  # (I,) -> (L,)
    """The share of each list's rank differences, between items of different labels, on the side of the higher label.

    It is nan where a list has none.
    """
    share = np.full(chunk.n_lists, np.nan)
    owner = np.repeat(np.arange(chunk.n_queries), np.diff(chunk.list_offsets))
    for a, (start, end) in enumerate(zip(chunk.entry_offsets[:-1], chunk.entry_offsets[1:], strict=True)):
        label = labels[chunk.item_offsets[owner[a]] + chunk.entry_item[start:end]]
        rank = chunk.entry_rank[start:end].astype(np.float64)
        gap = (rank[None, :] - rank[:, None])[label[:, None] > label[None, :]]
        if gap.any():
            share[a] = gap[gap > 0.0].sum() / np.abs(gap).sum()
    return share


LETTER: dict[str, type[Model]] = {model.name: model for model in (PlainSvd, CountAdherence)}


def paper_model(name: str, settings: Mapping[str, Any] | None = None) -> Model:
    """A model of this page, or of the package, by name."""
    return make(LETTER[name], dict(settings or {})) if name in LETTER else model_named(name, dict(settings or {}))
