"""Rankings joined to chunks by id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from distagg.errors import InputError
from distagg.metrics import evaluate_rankings, index_rankings, parse_metrics, ranking_scores, score_chunk


@dataclass
class FakeManifest:
    labels: dict[str, int]
    partition: str = "query"
    protocol: str = "letor"


@dataclass
class FakeRef:
    chunk: Any

    def load(self) -> Any:
        return self.chunk


@dataclass
class FakeDataset:
    """What evaluate_rankings asks of a dataset: its manifest and its chunks."""

    chunks: list[Any]
    manifest: FakeManifest

    def plan(self) -> tuple[FakeRef, ...]:
        return tuple(FakeRef(chunk) for chunk in self.chunks)


def table(*rows: tuple[str, str, int]) -> pa.Table:
    query, item, rank = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {"query": pa.array(query, pa.string()), "item": pa.array(item, pa.string()), "rank": pa.array(rank, pa.int32())}
    )


def test_join_equals_a_dictionary(make_chunk: Any) -> None:
    rng = np.random.default_rng(0)
    ids = [[f"d{i}" for i in rng.permutation(30)[:n]] for n in rng.integers(0, 20, 25)]
    chunk = make_chunk([[0] * len(names) for names in ids], ids)
    ranks = {(f"q{q}", name): int(rng.integers(1, 100)) for q, names in enumerate(ids) for name in names}
    rows = [(q, name, rank) for (q, name), rank in ranks.items() if rng.random() < 0.7]
    kept = {(q, name) for q, name, _ in rows}
    shuffled = [rows[i] for i in rng.permutation(len(rows))]
    wanted = [
        -ranks[f"q{q}", name] if (f"q{q}", name) in kept else -np.inf for q, names in enumerate(ids) for name in names
    ]
    np.testing.assert_array_equal(ranking_scores(index_rankings(table(*shuffled)), chunk), wanted)


def test_rank_gives_the_order_whatever_the_score(make_chunk: Any) -> None:
    chunk = make_chunk([[0, 1]], [["a", "b"]])
    rows = table(("q0", "b", 1), ("q0", "a", 2)).append_column("score", pa.array([0.5, 0.5]))
    np.testing.assert_array_equal(ranking_scores(index_rankings(rows), chunk), [-2.0, -1.0])
    only_scores = rows.drop_columns(["rank"]).set_column(2, "score", pa.array([0.25, 0.5]))
    np.testing.assert_array_equal(ranking_scores(index_rankings(only_scores), chunk), [0.5, 0.25])


def test_evaluates_over_several_chunks(make_chunk: Any) -> None:
    first, second = make_chunk([[0, 1], [1, 0]]), make_chunk([[0, 0], [0, 0], [2, 0]]).select(np.arange(3) == 2)
    dataset = FakeDataset([first, second], FakeManifest({"0": 6, "1": 2, "2": 1}))
    rows = table(("q0", "d1", 1), ("q0", "d0", 2), ("q1", "d1", 1), ("q1", "d0", 2), ("q2", "d0", 1))
    result = evaluate_rankings(rows, dataset, ["p@1", "err@1"])  # type: ignore[arg-type]
    assert result.query_ids.to_pylist() == ["q0", "q1", "q2"]
    np.testing.assert_allclose(result.values, [[1, 0.25], [0, 0], [1, 0.75]])
    assert result.means == pytest.approx({"p@1": 2 / 3, "err@1": 1 / 3})
    assert result.table().column_names == ["query", "p@1", "err@1"]


def test_experts_chunks_hold_the_same_query(make_chunk: Any) -> None:
    dataset = FakeDataset([make_chunk([[1, 0]])] * 3, FakeManifest({"0": 1, "1": 1}, partition="expert"))
    result = evaluate_rankings(table(("q0", "d0", 1)), dataset, ["p@1"])  # type: ignore[arg-type]
    assert result.values.tolist() == [[1.0]]


def test_items_left_out_come_last_in_letor_and_are_not_retrieved_in_trec(make_chunk: Any) -> None:
    chunk = make_chunk([[1, 0, 1]])
    scores = ranking_scores(index_rankings(table(("q0", "d1", 1))), chunk)
    metrics = parse_metrics(["map"])
    np.testing.assert_allclose(score_chunk(chunk, scores, metrics), [[(1 / 2 + 2 / 3) / 2]])
    np.testing.assert_allclose(score_chunk(chunk, scores, metrics, protocol="trec"), [[0.0]])


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("q0", "zz", 1)], "run.txt: found unknown item 'zz' in query 'q0'"),
        ([("q0", "c", 1)], "found unknown item 'c' in query 'q0'"),
        ([("q9", "a", 1)], "found unknown query 'q9'"),
        ([("q0", "a", 1), ("q1", "c", 1), ("q0", "a", 2)], "found more than one row for item 'a' in query 'q0'"),
    ],
)
def test_names_what_the_dataset_does_not_have(make_chunk: Any, rows: list[Any], says: str) -> None:
    dataset = FakeDataset([make_chunk([[0, 1], [1]], [["a", "b"], ["c"]])], FakeManifest({"0": 1, "1": 2}))
    with pytest.raises(InputError) as error:
        evaluate_rankings(table(*rows), dataset, ["map"], source="run.txt")  # type: ignore[arg-type]
    assert says in str(error.value)


def test_refuses_bad_columns() -> None:
    with pytest.raises(InputError, match="expected columns query, item and rank"):
        index_rankings(pa.table({"query": ["q"], "rank": [1]}))
    with pytest.raises(InputError, match="no item in row 2"):
        index_rankings(pa.table({"query": ["q", "q"], "item": ["a", None], "rank": [1, 2]}))
    with pytest.raises(InputError, match="NaN as the score of query 'q', item 'a'"):
        index_rankings(pa.table({"query": ["q"], "item": ["a"], "score": [np.nan]}))
    with pytest.raises(InputError, match="expected a column of type double"):
        index_rankings(pa.table({"query": ["q"], "item": ["a"], "rank": ["first"]}))


def test_accepts_other_types_and_an_empty_table(make_chunk: Any) -> None:
    chunk = make_chunk([[0, 1]], [["1", "2"]])
    rows = pa.table({"query": pa.array(["q0", "q0"]).dictionary_encode(), "item": [2, 1], "rank": [1.0, 2.0]})
    np.testing.assert_array_equal(ranking_scores(index_rankings(rows), chunk), [-2.0, -1.0])
    np.testing.assert_array_equal(ranking_scores(index_rankings(table()), chunk), [-np.inf, -np.inf])
    assert ranking_scores(index_rankings(rows), make_chunk([])).shape == (0,)
