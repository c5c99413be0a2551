"""Completed ratings: what completions learn, and rankings evaluated against every user."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from distagg import Dataset, Shown, fit_completion, rank, solve
from distagg.cli.main import main
from distagg.dataset.chunk import Chunk
from distagg.engine import evaluate_users, import_dataset
from distagg.engine.complete import predict, user_ndcg
from distagg.engine.dask import DaskRunner
from distagg.errors import InputError, UsageError
from distagg.models import NotConvergedWarning, completion_named
from distagg.models.completion.model import some_lists

USERS, ITEMS = 150, 40


@pytest.fixture(scope="module")
def low_rank(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, np.ndarray]:
    """Ratings from offsets and two tastes, half of them seen; and the truth in the dataset's order of items."""
    draw = np.random.default_rng(1)
    truth = 3 + draw.normal(0, 0.4, (USERS, 1)) + draw.normal(0, 0.4, ITEMS)
    truth = truth + draw.standard_normal((USERS, 2)) @ draw.standard_normal((2, ITEMS)) * 0.7
    truth = np.clip(truth, 1, 5)
    seen = draw.random((USERS, ITEMS)) < 0.5
    folder = tmp_path_factory.mktemp("low")
    rows = [f"{u}\t{i}\t{truth[u, i] + draw.normal(0, 0.1):.3f}" for u, i in zip(*np.nonzero(seen), strict=True)]
    (folder / "r.tsv").write_text("\n".join(rows) + "\n")
    (folder / "i.csv").write_text("id,title\n" + "".join(f"{i},t{i}\n" for i in range(ITEMS)))
    dataset = import_dataset("ratings", [folder / "r.tsv"], folder / "d", items=folder / "i.csv")
    return dataset, truth[[int(expert) for expert in dataset.experts]]


def in_pieces(dataset: Dataset, count: int) -> Dataset:
    whole = dataset.plan()[0].load()
    edges = np.linspace(0, whole.n_lists, count + 1).astype(int)
    held = [some_lists(whole, slice(a, b)) for a, b in itertools.pairwise(edges)]
    blocks = [replace(dataset.manifest.blocks[0], lists=c.n_lists, entries=c.n_entries) for c in held]
    return replace(dataset, held=tuple(held), manifest=replace(dataset.manifest, blocks=tuple(blocks)))


def error(dataset: Dataset, truth: np.ndarray, name: str, **settings: object) -> float:
    """Root mean squared error of the cells that nobody saw."""
    through = fit_completion(name, dataset, **settings)
    chunk = next(dataset.chunks())
    hidden = np.ones(truth.shape, dtype=bool)
    hidden[np.repeat(np.arange(USERS), np.diff(chunk.entry_offsets)), chunk.entry_item] = False
    cells = np.nonzero(hidden)
    return float(np.sqrt(np.mean((predict(dataset, through, *cells) - truth[cells]) ** 2)))


def test_planted_tastes_are_found(low_rank: tuple[Dataset, np.ndarray]) -> None:
    dataset, truth = low_rank
    mean = error(dataset, truth, "pmf", factors=1, weight=1e9, offset=1e9)
    assert error(dataset, truth, "pmf", factors=2, weight=1.0, offset=0.1) < 0.35 * mean
    assert error(dataset, truth, "pmf", factors=1, weight=1e9, offset=0.1) < 0.97 * mean  # offsets alone
    assert error(dataset, truth, "neighbours", shrink=5.0) < 0.75 * mean
    assert error(dataset, truth, "neighbours", shrink=5.0, pool=20) < error(dataset, truth, "neighbours", damp=1e9)


def test_the_objective_falls_and_too_few_rounds_are_said(low_rank: tuple[Dataset, np.ndarray]) -> None:
    dataset, _ = low_rank
    objectives = fit_completion("pmf", dataset, factors=3, weight=1.0)[1]["objectives"]
    assert (np.diff(objectives) < 0).all()
    with pytest.warns(NotConvergedWarning, match="still falls after 1 rounds"):
        fit_completion("pmf", dataset, rounds=1)


@pytest.mark.parametrize("name", ["pmf", "neighbours", "2.5"])
def test_pieces_give_the_same(name: str, low_rank: tuple[Dataset, np.ndarray]) -> None:
    dataset, _ = low_rank
    pieces = in_pieces(dataset, 5)
    rankings = {"mpm": rank("mpm", dataset), "borda": rank("borda", dataset)}
    whole, split = (
        evaluate_users(rankings, d, fit_completion(name, d), ["ndcg@1", "ndcg@7"]) for d in (dataset, pieces)
    )
    for model in rankings:
        np.testing.assert_allclose(whole.values[model], split.values[model], atol=1e-9)
    one, other = (
        solve("borda", d, through=fit_completion(name, d), shown=Shown(support=True)).ranking for d in (dataset, pieces)
    )
    assert one["item"].equals(other["item"])
    np.testing.assert_allclose(one["score"].to_numpy(), other["score"].to_numpy())


@pytest.mark.cluster
def test_the_same_bits_on_workers(low_rank: tuple[Dataset, np.ndarray], clusters: Callable[[int], DaskRunner]) -> None:
    pieces = in_pieces(low_rank[0], 5)
    rankings = {"borda": rank("borda", pieces)}

    def all_of_it(runner: object) -> list[bytes]:
        made = []
        for name in ("pmf", "neighbours"):
            through = fit_completion(name, pieces, runner=runner)
            made += [evaluate_users(rankings, pieces, through, ["ndcg@5"], runner=runner).values["borda"].tobytes()]
            made += [solve("borda", pieces, through=through, runner=runner).ranking["score"].to_numpy().tobytes()]
        return made

    here = all_of_it(None)
    for workers in (1, 2):
        assert all_of_it(clusters(workers)) == here


def test_borda_of_completed_ratings_is_borda_of_a_full_table(low_rank: tuple[Dataset, np.ndarray]) -> None:
    dataset, _ = low_rank
    completion, params = fit_completion("pmf", dataset)
    chunk = next(dataset.chunks())
    dense = np.concatenate([rows for _, rows in completion.rows(chunk, params)])
    assert dense.shape == (USERS, ITEMS)
    users = np.repeat(np.arange(USERS), np.diff(chunk.entry_offsets))
    np.testing.assert_array_equal(dense[users, chunk.entry_item], -chunk.entry_rank)
    points = (dense[:, :, None] > dense[:, None, :]).sum(axis=(0, 2)) + 0.5 * (
        (dense[:, :, None] == dense[:, None, :]).sum(axis=(0, 2)) - USERS
    )
    found = solve("borda", dataset, through=(completion, params)).ranking
    order = [int(item) for item in found["item"].to_pylist()]
    assert np.corrcoef(found["score"].to_numpy(), points[order])[0, 1] > 0.9999


def test_ndcg_is_equation_2() -> None:
    ratings = np.array([[5.0, 3.0, 4.0, 1.0], [2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    found = user_ndcg(ratings, np.array([1, 0, 2]))

    def dcg(values: list[float]) -> float:
        return sum((2**value - 1) / np.log2(1 + place) for place, value in enumerate(values, start=1))

    wanted = [dcg([3, 5, 4][:k]) / dcg([5, 4, 3][:k]) for k in (1, 2, 3)]
    np.testing.assert_allclose(found[0], wanted)
    np.testing.assert_allclose(found[1], 1.0)
    np.testing.assert_allclose(found[2], 0.0)  # nothing to gain


def test_commands(low_rank: tuple[Dataset, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = low_rank[0].path
    ranked = ["rank", "borda", path, "--complete", "pmf", "-c", "factors=2", "-o", str(tmp_path / "r")]
    assert main(ranked) == 0
    judged = ["evaluate", str(tmp_path / "r"), path, "--complete", "neighbours", "-m", "ndcg@3", "--json"]
    capsys.readouterr()
    assert main(judged) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0.5 < found["means"]["ndcg@3"] <= 1.0
    assert found["users"] == USERS
    assert main([*judged[:-1], "--where", "expert in ('3', '4')"]) == 0
    for wrong in (
        ["evaluate", str(tmp_path / "r"), path, "--complete", "pfm"],
        ["evaluate", str(tmp_path / "r"), path, "--complete", "pmf", "-m", "map"],
        ["evaluate", str(tmp_path / "r"), path, "--complete", "pmf", "-c", "factor=2"],
        ["evaluate", str(tmp_path / "r"), path, "--complete", "2", "-m", "ndcg@99"],
        ["evaluate", str(tmp_path / "r"), path, "--where", "expert = '3'"],
        ["rank", "mpm", path, "-c", "factors=2", "-o", str(tmp_path / "x")],
        ["rank", "mpm", path, "--complete", "pmf", "--bootstrap", "3", "-o", str(tmp_path / "x")],
        ["rank", "bestinput", path, "--complete", "pmf", "-o", str(tmp_path / "x")],
    ):
        assert main(wrong) == 2, wrong


def test_what_is_no_rating_is_not_completed(planted: Path, low_rank: tuple[Dataset, np.ndarray]) -> None:
    with pytest.raises(UsageError, match="pmf completes ratings"):
        fit_completion("pmf", Dataset.open(planted))
    short = pa.table({"item": ["0", "nobody"], "rank": [1, 2]})
    with pytest.raises(InputError, match="item 'nobody'"):
        evaluate_users({"x": short}, low_rank[0], fit_completion(1, low_rank[0]), ["ndcg@2"])
    assert completion_named("0").value == 0.0


def test_hard_users(tmp_path: Path) -> None:
    """One rating, all alike, an item nobody rated: finite completions within the scale."""
    (tmp_path / "r.tsv").write_text("a\tx\t5\nb\tx\t3\nb\ty\t3\nc\tx\t1\nc\ty\t4\n")
    (tmp_path / "i.csv").write_text("id,title\nx,X\ny,Y\nz,Nobody\n")
    dataset = import_dataset("ratings", [tmp_path / "r.tsv"], tmp_path / "d", items=tmp_path / "i.csv")
    for name in ("pmf", "neighbours"):
        completion, params = fit_completion(name, dataset)
        chunk: Chunk = next(dataset.chunks())
        dense = np.concatenate([rows for _, rows in completion.rows(chunk, params)])
        assert np.isfinite(dense).all()
        assert dense.min() >= 1
        assert dense.max() <= 5
