"""hold_outs: every part of the labelled queries is held out once, none is lost, other data are left as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distagg.dataset import Dataset
from distagg.engine.folds import hold_outs, make_folds


def queries(dataset: Dataset) -> set[int]:
    return {int(p) for chunk in dataset.chunks(ids=False) for p in chunk.positions}


@pytest.mark.parametrize(("folds", "held"), [("letor5", False), ("6", False), ("6", True)])
def test_every_part_is_held_out_once(hostile: Dataset, folds: str, held: bool) -> None:
    dataset = Dataset.from_arrow(hostile.to_arrow()) if held else hostile
    for fold in make_folds(dataset, folds):
        ways = hold_outs(fold.train, fold.valid)
        assert ways[0] == (fold.train, fold.valid)
        assert len(ways) == (4 if folds == "letor5" else 5)
        labelled = queries(fold.train) | queries(fold.valid)
        assert not labelled & queries(fold.test)
        assert sorted(q for _, valid in ways for q in queries(valid)) == sorted(labelled)
        for train, valid in ways:
            assert queries(train) == labelled - queries(valid)


def test_unlike_datasets_are_left_as_they_are(hostile: Dataset) -> None:
    fold = make_folds(hostile, "5")[0]
    apart = Dataset.from_arrow(hostile.to_arrow())
    mirrored = replace(apart, held=tuple(replace(chunk, labels=chunk.labels[::-1].copy()) for chunk in apart.held))
    for train, valid in (
        (fold.train, None),
        (hostile, hostile),
        (fold.train, hostile),
        (fold.train, fold.train),
        (fold.train, hostile.select(fold=(7, {3}))),
        (fold.train, hostile.select(parts=[hostile.manifest.parts[0]])),
        (fold.train, make_folds(apart, "5")[0].valid),
        (make_folds(apart, "5")[0].train, make_folds(mirrored, "5")[0].valid),
        (fold.train, fold.valid.select(without=[hostile.experts[0]])),
    ):
        assert hold_outs(train, valid) == [(train, valid)]
