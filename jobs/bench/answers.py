"""Whether contestants give the same answers: speed alone proves nothing."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from contest import Field, Player
from lists import DATASET, export, make_dataset
from scipy.stats import kendalltau

from distagg.dataset import Dataset
from distagg.sources.synthetic import SyntheticSource

SAME = 1e-9  # scores that differ by less, relative to the largest, are tied
ALL = "100%"
QUERIES = 60  # with complete lists


class Agreements:
    """Whether rankings by others are those that our scores give."""

    def __init__(self, folder: Path) -> None:
        chunks = list(Dataset.open(folder / DATASET).chunks())
        self.ids = pa.chunked_array([chunk.item_ids for chunk in chunks]).combine_chunks()
        sizes = np.concatenate([np.diff(chunk.item_offsets) for chunk in chunks])
        self.offsets = np.concatenate([[0], np.cumsum(sizes)])
        self.query = np.repeat(np.arange(len(sizes)), sizes)

    def of(self, scores: list[float], answer: dict[str, list[Any]]) -> str:
        """Share of queries ranked the same up to ties, and where that is not all, the mean of Kendall's tau."""
        score = np.array(scores)
        if "item_id" in answer:
            found = pc.index_in(pa.array(answer["item_id"], pa.string()), value_set=self.ids)
            row = found.to_numpy(zero_copy_only=False)
        else:
            row = self.offsets[np.array(answer["query"])] + np.array(answer["item"])
        if not np.array_equal(np.sort(row), np.arange(len(score))):
            return "NOT ALL ITEMS"
        row = row[np.argsort(self.query[row], kind="stable")]
        ranked = score[row]
        rises = np.diff(ranked) > SAME * np.abs(score).max()
        rises &= self.query[row][1:] == self.query[row][:-1]
        wrong = np.unique(self.query[row][1:][rises])
        equal = 1 - len(wrong) / (len(self.offsets) - 1)
        if not len(wrong):
            return ALL
        spans = zip(self.offsets[:-1], self.offsets[1:], strict=True)
        taus = [kendalltau(ranked[a:b], -np.arange(b - a)).statistic for a, b in spans if b - a > 1]
        return f"{equal:.0%}, tau {np.nanmean(taus):.3f}"


def compare_complete(folder: Path, field: Field, seed: int) -> list[dict[str, str]]:
    """Answers where every expert ranks every item, so that no rule about unlisted items divides the contestants."""
    make_dataset(folder, SyntheticSource(QUERIES, missing=0.0, seed=seed))
    export(folder)
    agreements, answer, rows = Agreements(folder), folder / "rows.json", []
    with ExitStack() as stack:
        ours = stack.enter_context(Player(sys.executable, "ours", folder))
        ours.ask("load")
        for player in field.players(folder):
            stack.enter_context(player)
            player.ask("load")
            for model in field.models:
                if model in player.cases:
                    same = agreements.of(ours.rows(model, answer)["score"], player.rows(model, answer))
                    rows.append({"model": model, "peer": player.name, "same answer": same})
    return sorted(rows, key=lambda row: row["same answer"] == ALL)
