"""Raw pairs by expert: sums by definition, lists spelled out as pairs, and models trained on the votes of a crowd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from crowds import in_pieces, planted_votes
from strategies import build_chunk, on_chunks

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.dataset.chunk import Chunk
from distagg.engine import Fitted, features, judge_experts
from distagg.engine.compare import evaluate_model
from distagg.engine.dask import DaskRunner
from distagg.engine.fitting.fit import fit
from distagg.engine.inspect.attribution import explain
from distagg.engine.rank import solved
from distagg.errors import UsageError
from distagg.models import MODELS, Model
from distagg.models.compared import by_expert, compared
from distagg.models.crf.model import Crf
from distagg.models.pairs import won_and_lost
from distagg.models.scorers.features import FeatureSettings, chunk_features
from distagg.models.scorers.scorer import LambdaRank, Stagg
from distagg.reports.experts_page import explanation_report
from distagg.types import INDEX, OFFSET

ADVERSARIES = {"good": (4, 0.95), "coin": (3, 0.5), "turned": (5, 0.05)}
SUMS = {"features": "sums", "rounds": 15}
LEARNERS = [Crf(rounds=15), LambdaRank(**SUMS, rate=0.3), Stagg(**SUMS, rate=3.0)]


def as_pairs(chunk: Chunk) -> Chunk:
    """The pairs of all lists, each with its expert, in place of the lists."""
    rows: list[tuple[int, int, int, int]] = []
    for q in range(chunk.n_queries):
        for a in range(chunk.list_offsets[q], chunk.list_offsets[q + 1]):
            span = range(chunk.entry_offsets[a], chunk.entry_offsets[a + 1])
            rows += [
                (q, chunk.list_expert[a], chunk.entry_item[i], chunk.entry_item[j])
                for i in span
                for j in span
                if chunk.entry_rank[i] < chunk.entry_rank[j]
            ]
    query, expert, winner, loser = np.array(rows, dtype=INDEX).reshape(-1, 4).T
    empty = build_chunk([])
    return replace(
        chunk,
        list_offsets=np.zeros_like(chunk.list_offsets),
        **{name: getattr(empty, name) for name in ("list_expert", "entry_offsets", "entry_item", "entry_rank")},
        pair_offsets=np.searchsorted(query, np.arange(chunk.n_queries + 1)).astype(OFFSET),
        pair_expert=expert.copy(),
        pair_winner=winner.copy(),
        pair_loser=loser.copy(),
        pair_weight=np.ones(len(rows)),
        pair_tie=np.zeros(len(rows), dtype=np.bool_),
    )


def rows_of(chunk: Chunk, values: np.ndarray) -> dict[tuple[int, int], list[float]]:
    """The values of entries by (expert, item of the chunk), without entries that won and lost nothing."""
    expert = np.repeat(chunk.list_expert, np.diff(chunk.entry_offsets))
    named = zip(zip(expert.tolist(), chunk.entry_row().tolist(), strict=True), values.tolist(), strict=True)
    return {key: row for key, row in named if any(row[1:])}


@on_chunks(60)
def test_a_list_and_its_pairs_have_the_same_potentials(drawn):
    _, chunk = drawn
    pairs = as_pairs(chunk)
    expected = rows_of(chunk, won_and_lost("crf", chunk, ["binary"], 0.0))
    found = rows_of(by_expert(pairs), won_and_lost("crf", pairs, ["log"], 0.0))
    assert expected.keys() == found.keys()
    for key, row in expected.items():
        np.testing.assert_allclose(found[key], row, rtol=1e-14)


@on_chunks(30)
@pytest.mark.parametrize("combined", [False, True])
def test_features_of_sums_are_the_potentials(combined, drawn):
    """Combined: their sum over the experts of a query, divided by their number."""
    _, chunk = drawn
    settings = FeatureSettings("sums", "all", combined=combined)
    for data in (chunk, as_pairs(chunk)):
        lists, potentials = by_expert(data), won_and_lost("crf", data, settings.functions, 0.0)[:, 1:]
        found = chunk_features(data, settings)
        row = np.repeat(data.item_offsets[:-1], np.diff(found.offsets)) + found.item
        assert found.values.shape[1] == settings.width == 7
        if not combined:
            assert row.tolist() == lists.entry_row().tolist()
            np.testing.assert_array_equal(found.values[:, :-1], potentials)
            continue
        for at, item in enumerate(row):
            query = np.searchsorted(data.item_offsets, item, side="right") - 1
            total = potentials[lists.entry_row() == item].sum(axis=0)
            np.testing.assert_allclose(found.values[at, :-1], total / np.diff(lists.list_offsets)[query], atol=1e-12)


def test_sums_are_their_definition():
    """Weights, ties, repeated pairs, weights of 0, experts in several queries, a query without pairs."""
    draw = np.random.default_rng(3)
    sizes, counts = [5, 3, 4], [40, 0, 25]
    n = sum(counts)
    query = np.repeat(np.arange(3), counts)
    winner = draw.integers(0, np.array(sizes)[query])
    chunk = replace(
        as_pairs(build_chunk([], n_experts=4)),
        item_offsets=np.concatenate([[0], np.cumsum(sizes)]),
        labels=np.zeros(12, dtype=np.int32),
        list_offsets=np.zeros(4, dtype=OFFSET),
        pair_offsets=np.concatenate([[0], np.cumsum(counts)]),
        pair_expert=draw.integers(0, 4, n).astype(INDEX),
        pair_winner=winner.astype(INDEX),
        pair_loser=((winner + 1 + draw.integers(0, 2, n)) % np.array(sizes)[query]).astype(INDEX),
        pair_weight=draw.integers(0, 4, n) / 2.0,
        pair_tie=draw.random(n) < 0.3,
    )
    sums: dict[tuple[int, int, int], list[float]] = {}
    columns = (chunk.pair_expert, chunk.pair_winner, chunk.pair_loser, chunk.pair_weight, chunk.pair_tie)
    for q, expert, first, second, weight, tie in zip(query, *columns, strict=True):
        if weight > 0.0:
            for side, item in enumerate((first, second)):
                row = sums.setdefault((int(q), int(expert), int(item)), [0.0, 0.0])
                row[side] += 0.0 if tie else float(weight)
    lists, won, lost = compared(chunk)
    owner = np.repeat(np.arange(3), np.diff(lists.entry_offsets[lists.list_offsets]))
    expert = np.repeat(lists.list_expert, np.diff(lists.entry_offsets))
    keys = list(zip(owner.tolist(), expert.tolist(), lists.entry_item.tolist(), strict=True))
    assert keys == sorted(sums)
    assert [[a, b] for a, b in zip(won, lost, strict=True)] == [sums[key] for key in keys]
    assert not lists.n_pairs


def voted(queries: int, seed: int) -> tuple[Dataset, pa.Table, pa.Table]:
    """Votes on queries with labels by strength: 2 for the best third, 0 for the worst."""
    strength, _, votes = planted_votes(seed, votes=30 * queries, planted=ADVERSARIES, queries=queries)
    place = strength.argsort(axis=1).argsort(axis=1)
    labels = pa.table(
        {
            "query": np.repeat([f"q{q:03}" for q in range(queries)], strength.shape[1]),
            "item": [f"i{i:02}" for i in range(strength.shape[1])] * queries,
            "label": pa.array((place * 3 // strength.shape[1]).ravel(), pa.int32()),
        }
    )
    return Dataset.from_arrow(votes, judgements=labels), votes, labels


def ndcg(model: Model, params: dict[str, np.ndarray], dataset: Dataset) -> float:
    return float(evaluate_model(model, params, dataset, ["ndcg@5"])[1].mean())


@pytest.mark.parametrize("model", LEARNERS, ids=lambda model: model.name)
def test_adversaries_are_turned_round(model: Model):
    """Most annotators are adversaries: a majority is led astray, labels of other queries teach whom to believe."""
    (train, *_), (test, *_) = voted(40, 1), voted(20, 2)
    params = fit(model, train)
    reached = ndcg(model, params, test)
    assert reached > 0.9
    assert reached > ndcg(MODELS["copeland"](), {}, test) + 0.2
    fitted = Fitted(model, params, train.experts)
    told = {quality.expert: quality.verdict for quality in judge_experts(fitted, test)}
    for kind, verdict in (("good", "useful"), ("turned", "inverted")):
        assert {told[name] for name in told if name.startswith(kind)} == {verdict}
    shown = explain(fitted, test, "q000")
    assert shown["exact"]  # scores are sums over experts
    for item in shown["items"]:
        assert sum(item["lifts"].values()) == pytest.approx(item["score"], abs=1e-9)


def test_a_ranking_of_pairs_is_explained_by_what_each_expert_compared():
    votes = {"query": ["q"] * 5, "expert": list("aaabb"), "winner": list("xxyzy"), "loser": list("yzzxx")}
    data = Dataset.from_arrow(pa.table(votes | {"weight": [1.0, 2.0, 1.0, 1.0, 1.0]}))
    fitted = Fitted(MODELS["bradley_terry"](), {}, data.experts)
    shown = explain(fitted, data, "q")
    assert shown["consensus"] == "borda"
    assert not shown["exact"]
    by_item = {item["item"]: item for item in shown["items"]}
    assert by_item["x"]["records"] == {"a": [3.0, 0.0], "b": [0.0, 2.0]}
    assert by_item["y"]["records"] == {"a": [1.0, 1.0], "b": [1.0, 0.0]}
    without = solved(fitted.model, next(data.select(without=["a"]).chunks()), {}).score
    whole = solved(fitted.model, next(data.chunks()), {}).score
    lift = (whole - whole.mean()) - (without - without.mean())
    assert [by_item[name]["lifts"]["a"] for name in "xyz"] == pytest.approx(lift)
    assert by_item["x"]["lifts"]["a"] > 0 > by_item["x"]["lifts"]["b"]
    page = explanation_report([shown])
    assert "lost more" in page
    assert "near the top" not in page


def test_features_of_lists_are_refused_for_pairs():
    with pytest.raises(
        UsageError, match=r"LambdaRank\(\) takes lists, but the dataset holds pairs; choose features=sums"
    ):
        fit(LambdaRank(), voted(4, 1)[0])


def test_a_table_of_features_of_pairs():
    dataset, votes, _ = voted(4, 1)
    table = features(dataset, kind="sums", pairs="binary").to_pandas().set_index(["query", "item"])
    rows = votes.to_pandas()
    rows = rows[rows["expert"] == "good-0"]
    for end, side, sign in (("won", "winner", 1.0), ("lost", "loser", -1.0)):
        counts = rows.groupby(["query", side]).size()
        expected = np.array([sign * counts.get(key, 0) / 12 for key in table.index])
        np.testing.assert_allclose(table[f"good-0:{end}"], expected, atol=1e-12)
    with pytest.raises(UsageError, match="choose kind sums"):
        features(dataset)


def test_the_chunks_of_one_query_are_refused():
    _, _, votes = planted_votes(1, planted=ADVERSARIES)
    labels = pa.table({"query": ["all"] * 12, "item": [f"i{i:02}" for i in range(12)], "label": [0, 1, 2] * 4})
    with pytest.raises(UsageError, match=r"crf learns from whole queries.*choose crowd_bt"):
        fit(Crf(), in_pieces(Dataset.from_arrow(votes, judgements=labels), 3))


@pytest.mark.cluster
@pytest.mark.parametrize("settings", [{"mode": "average"}, {"mode": "gradient", "orders": 20}], ids=str)
def test_the_same_bits_on_workers(settings: dict[str, Any], clusters: Callable[[int], DaskRunner]):
    dataset, model = voted(40, 1)[0], Crf(rounds=3, **settings)
    (whole,), block = dataset.chunks(), dataset.manifest.blocks[0]
    pieces = tuple(whole.select(np.arange(40) % 5 == n) for n in range(5))
    blocks = tuple(replace(block, entries=piece.n_pairs) for piece in pieces)
    train = replace(dataset, held=pieces, manifest=replace(dataset.manifest, blocks=blocks))
    assert len(train.plan()) == 5
    here, there = fit(model, train), fit(model, train, runner=clusters(2))
    assert here.keys() == there.keys()
    for key in here:
        np.testing.assert_array_equal(here[key], there[key])


def test_a_start_from_the_quality_of_lists_is_refused():
    with pytest.raises(UsageError, match="prior weighs experts by the quality of their lists"):
        fit(Crf(prior=1.0), voted(4, 1)[0])


def test_votes_and_qrels_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    _, votes, labels = voted(12, 3)
    pa.csv.write_csv(votes, tmp_path / "votes.csv")
    lines = (f"{row['query']} 0 {row['item']} {row['label']}" for row in labels.to_pylist())
    (tmp_path / "qrels.txt").write_text("\n".join(lines) + "\n")
    data, model = str(tmp_path / "votes"), str(tmp_path / "model")
    assert (
        main(["import", "pairs", str(tmp_path / "votes.csv"), "--qrels", str(tmp_path / "qrels.txt"), "-o", data]) == 0
    )
    assert Dataset.open(data).info()["labels"] == {"0": 48, "1": 48, "2": 48}
    assert main(["fit", "crf", data, "-o", model, "-p", "rounds=4"]) == 0
    capsys.readouterr()
    assert main(["rank", model, data, "-o", str(tmp_path / "ranked")]) == 0
    assert main(["evaluate", str(tmp_path / "ranked"), data, "-m", "ndcg@5"]) == 0
    assert "ndcg@5" in capsys.readouterr().out
