"""Items without a label: zero is the same as labels of 0, ignore learns from judged items alone."""

import numpy as np
import pyarrow as pa
import pytest
from strategies import Query, build_chunk

from distagg import Dataset, fit
from distagg.models import MODELS, model_named
from distagg.models.pool import fused_places
from distagg.models.unjudged import MOST, labelled_queries, training_labels
from distagg.types import NO_LABEL

WITH_UNJUDGED = sorted(name for name, kind in MODELS.items() if "unjudged" in kind.__dataclass_fields__)
SHORT = {
    "crf": {"rounds": 3},
    "lambdarank": {"rounds": 3},
    "stagg": {"rounds": 2},
    "lambdamart": {"trees": 3},
    "probfuse": {"segments_per_list": 3},
}


def pooled(unknown: int | None, n_queries: int = 8, n_items: int = 12) -> Dataset:
    """Three experts; of each list the first four items are judged, the others have the label ``unknown``."""
    draw, rows, labels = np.random.default_rng(5), [], []
    for q in range(n_queries):
        truth, judged, listed = draw.normal(size=n_items), set(), set()
        for e in range(3):
            order = np.argsort(-(truth + draw.normal(size=n_items))).tolist()[: 8 + e]
            listed |= set(order)
            judged |= set(order[:4]) if q else set()  # the first query has no labels at all
            rows += [
                {"query": f"q{q}", "expert": f"e{e}", "item": f"i{i}", "rank": r + 1.0} for r, i in enumerate(order)
            ]
        for i in sorted(listed):
            label = int(truth[i] > 0.5) + int(truth[i] > 1.2) if i in judged else (unknown if q else None)
            if label is not None:
                labels.append({"query": f"q{q}", "item": f"i{i}", "label": label})
    return Dataset.from_arrow(pa.Table.from_pylist(rows), judgements=pa.Table.from_pylist(labels))


def test_models_that_learn_from_labels_have_the_setting() -> None:
    assert {"crf", "lambdarank", "stagg", "lambdamart", "theta_sup_mpm", "probfuse", "mapfuse"} <= set(WITH_UNJUDGED)


@pytest.mark.parametrize("name", WITH_UNJUDGED)
def test_zero_is_the_same_as_labels_of_zero(name: str) -> None:
    """And differs from ignore, which is the same on data that are fully labelled."""
    some, every = pooled(None), pooled(0)

    def learned(data: Dataset, unjudged: str) -> np.ndarray:
        model = model_named(name, SHORT.get(name, {}) | {"unjudged": unjudged})
        params = fit(model, data).params
        names = [key for key in params if key not in ("curve", "round")]
        return np.concatenate([params[key].ravel() for key in sorted(names)])

    zero = learned(some, "zero")
    np.testing.assert_array_equal(zero, learned(every, "zero"))
    np.testing.assert_array_equal(zero, learned(every, "ignore"))
    ignored = learned(some, "ignore")
    assert ignored.shape != zero.shape or not np.allclose(ignored, zero)


def test_labels_of_queries_without_any_stay_unknown() -> None:
    lists = {0: {0: 1.0, 1: 2.0, 2: 3.0}}
    chunk = build_chunk(
        [Query(3, lists, [None, None, None]), Query(3, lists, [None, 2, -1]), Query(3, lists, [0, 1, 2])]
    )
    assert labelled_queries(chunk).tolist() == [False, True, True]
    assert training_labels(chunk, "zero").tolist() == [NO_LABEL] * 3 + [0, 2, 0] + [0, 1, 2]
    assert training_labels(chunk, "ignore").tolist() == [NO_LABEL] * 4 + [2, 0] + [0, 1, 2]


def test_only_the_first_items_of_a_large_query_count_as_irrelevant() -> None:
    size = MOST + 200
    ranks = np.random.default_rng(0).permutation(size) + 1.0
    chunk = build_chunk([Query(size, {0: dict(enumerate(ranks.tolist()))}, [1] + [None] * (size - 1))])
    labels = training_labels(chunk, "zero")
    np.testing.assert_array_equal(fused_places(chunk), ranks - 1)
    np.testing.assert_array_equal(labels[1:] == 0, ranks[1:] <= MOST)
    assert labels[0] == 1
    assert (training_labels(chunk, "zero", most=0)[1:] == 0).all()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", ["probfuse", "posfuse", "mapfuse", "bayesfuse", "segfuse"])
def test_the_worth_of_places_among_judged_items(name: str, tied: bool) -> None:
    """One list, items judged but the second and the fifth; with ties, all items of a pair share hits and judgements."""
    judged, relevant = np.array([1, 0, 1, 1, 0, 1.0]), np.array([1, 0, 0, 1, 0, 0.0])
    ranks = np.array([1, 1, 2, 2, 3, 3.0]) if tied else np.arange(1.0, 7.0)
    labels = [int(r) if j else None for r, j in zip(relevant, judged, strict=True)]
    chunk = build_chunk([Query(6, {0: dict(enumerate(ranks.tolist()))}, labels)])
    if tied:
        judged, relevant = (np.repeat(row.reshape(3, 2).mean(axis=1), 2) for row in (judged, relevant))
    model = model_named(name, {"unjudged": "ignore"} | ({"segments_per_list": 2} if name == "probfuse" else {}))
    worth = model.worth(model.tallies(chunk))[0]
    if name == "mapfuse":
        assert worth == pytest.approx((relevant * relevant.cumsum() / judged.cumsum()).sum() / 2)
        return
    if name == "posfuse":
        expected = relevant / np.where(judged > 0, judged, 1)
    elif name == "probfuse":
        expected = [relevant[:3].sum() / judged[:3].sum(), relevant[3:].sum() / judged[3:].sum() / 2]
    else:
        expected = np.array([relevant[:5].sum() / judged[:5].sum(), relevant[5:].sum() / judged[5:].sum()])
    if name == "bayesfuse":
        chance = np.where(expected == 0, model.least, expected)
        expected = np.log(chance / (1 - chance)) - np.log(model.least / (1 - model.least))
    np.testing.assert_allclose(worth[: len(expected)], expected)
