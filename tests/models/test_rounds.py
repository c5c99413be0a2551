"""Models that fit one query in rounds over chunks of its experts: the same as on the whole query."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.dataset.chunk_ref import ChunkRef
from distagg.engine import solve
from distagg.engine.dask import DaskRunner
from distagg.engine.rank import Result
from distagg.errors import UsageError
from distagg.models import NotConvergedWarning
from distagg.models.pairwise import routes
from distagg.models.pairwise.counts import PAIR_BYTES
from distagg.models.pairwise.routes import BlockRound, edge
from distagg.models.rounds import Statistics

SETTINGS = [
    ("plackett_luce", {}),
    ("plackett_luce", {"solver": "mm", "tolerance": 1e-9}),
    ("plackett_luce", {"unlisted": "last", "shape": 0.3}),
    ("bradley_terry", {"route": "counts"}),
    ("bradley_terry", {"route": "lists", "weight": 0.5}),
    ("bradley_terry", {"route": "lists", "pairs": "binary", "weight": 0.5}),
]


@pytest.fixture(scope="module")
def split(crowd: Path) -> Dataset:
    """The crowd of 400 users in 7 chunks."""
    whole = Dataset.open(crowd).plan()[0].load()
    edges = np.linspace(0, whole.n_lists, 8).astype(int)
    return held(
        Dataset.open(crowd), [whole.repeat_experts(within(whole.n_experts, *e)) for e in itertools.pairwise(edges)]
    )


def within(size: int, first: int, last: int) -> np.ndarray:
    return ((np.arange(size) >= first) & (np.arange(size) < last)).astype(np.int64)


def held(dataset: Dataset, chunks: list) -> Dataset:
    block = dataset.manifest.blocks[0]
    blocks = tuple(replace(block, lists=chunk.n_lists, entries=chunk.n_entries) for chunk in chunks)
    return replace(dataset, held=tuple(chunks), manifest=replace(dataset.manifest, blocks=blocks))


def by_item(result: Result) -> dict[str, tuple]:
    return {row["item"]: (row["score"], row["status"], row["component"]) for row in result.ranking.to_pylist()}


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_rounds_end_where_the_whole_fit_does(name: str, settings: dict, crowd: Path, split: Dataset) -> None:
    whole, pieces = solve(name, Dataset.open(crowd), **settings), solve(name, split, **settings)
    here, there = by_item(whole), by_item(pieces)
    assert pieces.converged
    for item, (score, *rest) in here.items():
        assert there[item][0] == pytest.approx(score, abs=1e-7)
        assert list(there[item][1:]) == rest
    mine, theirs = pieces.fits.to_pylist()[0], whole.fits.to_pylist()[0]
    assert mine["likelihood"] == pytest.approx(theirs["likelihood"], rel=1e-9)


def test_the_weight_of_the_prior_is_sought_by_every_route(split: Dataset) -> None:
    found = [solve("bradley_terry", split, route=route).fits.to_pylist()[0]["weight"] for route in ("counts", "lists")]
    assert found[0] == pytest.approx(found[1], rel=0.02)
    assert found[0] != 1.0  # where seeking starts


def test_counts_merge_a_block_of_items_at_a_time(split: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """No merge holds more than its block, all blocks together are the counts of one, and ties count once."""
    whole = solve("bradley_terry", split, route="counts")
    seen: list[tuple[int, int]] = []
    reduce = BlockRound.reduce

    def watched(self: BlockRound, a: Statistics, b: Statistics) -> Statistics:
        made = reduce(self, a, b)
        low = np.minimum(made["pair_winner"], made["pair_loser"])
        seen.append((int(low.min()), int(low.max())))
        return made

    monkeypatch.setattr(BlockRound, "reduce", watched)
    monkeypatch.setattr(routes, "BLOCK_BYTES", 60 * 59 // 2 * PAIR_BYTES // 3)
    blocks = solve("bradley_terry", split, route="counts")
    assert by_item(blocks) == by_item(whole)
    assert blocks.fits.equals(whole.fits)
    assert len(seen) == 3 * 6  # merges of 7 chunks
    edges = [edge(n, 3, 60) for n in range(4)]
    for n, (least, most) in enumerate(seen):
        assert edges[n // 6] <= least <= most < edges[n // 6 + 1]


@pytest.mark.parametrize(("blocks", "items"), [(1, 5), (3, 60), (7, 7), (4, 2)])
def test_blocks_hold_every_item_once(blocks: int, items: int) -> None:
    edges = [edge(n, blocks, items) for n in range(blocks + 1)]
    assert (edges[0], edges[-1]) == (0, items)
    assert edges == sorted(edges)


@pytest.mark.cluster
def test_the_same_bits_inline_and_on_one_or_two_workers(split: Dataset, clusters: Callable[[int], DaskRunner]) -> None:
    tried = [SETTINGS[0], SETTINGS[4]]
    here = [solve(name, split, **set_to) for name, set_to in tried]
    for workers in (1, 2):
        for known, (name, set_to) in zip(here, tried, strict=True):
            there = solve(name, split, runner=clusters(workers), **set_to)
            assert there.ranking.equals(known.ranking)
            assert there.fits.equals(known.fits)


def test_what_needs_whole_queries_is_refused(split: Dataset) -> None:
    for wrong in ({"solver": "gibbs"}, {"solver": "ilsr"}, {"prior": "none"}, {"errors": "standard"}):
        with pytest.raises(UsageError, match="needs whole queries"):
            solve("plackett_luce", split, **wrong)
    for wrong in ({"prior": "gamma"}, {"ties": "davidson"}, {"unlisted": "last"}, {"errors": "standard"}):
        with pytest.raises(UsageError, match="route=lists, which is for"):
            solve("bradley_terry", split, route="lists", **wrong)


def test_too_few_steps_are_said(split: Dataset) -> None:
    for name, set_to in SETTINGS:
        if set_to.get("route") == "counts":
            continue
        with pytest.warns(NotConvergedWarning, match="not converged after 2 steps"):
            result = solve(name, split, steps=2, **set_to)
        assert not result.converged


def test_trace_of_rounds_climbs(split: Dataset) -> None:
    (trace,) = solve("plackett_luce", split, trace=True).fits["trace"].to_pylist()
    assert len(trace) > 3
    assert trace[-1] > trace[0]


def test_users_who_say_nothing(crowd: Path) -> None:
    """All lists tied, or of one item: all scores equal, nothing to climb."""
    whole = Dataset.open(crowd).plan()[0].load()
    tied = replace(whole, entry_rank=np.full(whole.n_entries, -3.0))
    dataset = held(Dataset.open(crowd), [tied.repeat_experts(within(400, *e)) for e in ((0, 200), (200, 400))])
    for name, set_to in SETTINGS:
        if "unlisted" in set_to:
            continue
        result = solve(name, dataset, **set_to)
        assert set(result.ranking["score"].to_pylist()) == {0.0}, name
        assert result.converged


def test_the_estimate_is_said(crowd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    plan = Dataset.plan

    def finely(self: Dataset, chunk_entries: int = 0) -> tuple[ChunkRef, ...]:
        whole = plan(self)[0]
        chunk = whole.load()
        return tuple(replace(whole, held=chunk.repeat_experts(within(400, *e))) for e in ((0, 150), (150, 400)))

    monkeypatch.setattr(Dataset, "plan", finely)
    assert main(["rank", "bradley_terry", str(crowd), "-o", str(tmp_path / "r")]) == 0
    said = capsys.readouterr().err
    assert "pairs of lists, at most" in said
    assert "route=counts" in said
