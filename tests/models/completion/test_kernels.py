"""Half steps of alternating least squares, and nearest neighbours, against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

from distagg.models.completion.kernels import Ratings, fit_items, fit_users, item_sums, nearest, predict_all


@pytest.fixture
def ratings() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(4)
    lengths = draw.integers(0, 7, 12)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    item = np.concatenate([draw.permutation(9)[:n] for n in lengths]).astype(np.int32)
    made = {"offsets": offsets, "item": item, "rating": draw.integers(1, 6, len(item)).astype(float)}
    for array in made.values():
        array.setflags(write=False)
    return made


def test_half_steps_are_ridge_regressions(ratings: dict[str, np.ndarray]) -> None:
    draw = np.random.default_rng(0)
    items, ridge, mean = draw.standard_normal((9, 4)), np.array([0.7, 2.0, 2.0, 2.0]), 3.2
    offsets, item, rating = ratings["offsets"], ratings["item"], ratings["rating"]
    user = np.empty((12, 4))
    fit_users(mean, ridge, offsets, item, rating, items, user)
    owner = np.repeat(np.arange(12), np.diff(offsets))
    for a in range(12):
        mine = owner == a
        x = np.column_stack([np.ones(mine.sum()), items[item[mine], 1:]])
        left = rating[mine] - mean - items[item[mine], 0]
        np.testing.assert_allclose(user[a], np.linalg.solve(x.T @ x + np.diag(ridge), x.T @ left), atol=1e-12)
    matrix, right = np.zeros((9, 4, 4)), np.zeros((9, 4))
    squared = item_sums(mean, offsets, item, rating, user, items, matrix, right)
    said = mean + user[owner, 0] + items[item, 0] + (user[owner, 1:] * items[item, 1:]).sum(axis=1)
    assert squared == pytest.approx(((rating - said) ** 2).sum())
    dense = np.empty((12, 9))
    predict_all(mean, user, np.ascontiguousarray(items.T), dense)
    np.testing.assert_allclose(dense[owner, item], said)
    fit_items(ridge, matrix, right)
    for i in range(9):
        theirs = item == i
        x = np.column_stack([np.ones(theirs.sum()), user[owner[theirs], 1:]])
        left = rating[theirs] - mean - user[owner[theirs], 0]
        np.testing.assert_allclose(right[i], np.linalg.solve(x.T @ x + np.diag(ridge), x.T @ left), atol=1e-12)


@pytest.mark.parametrize(("most", "shrink", "damp"), [(2, 0.0, 0.0), (3, 5.0, 0.4), (99, 1.0, 0.1)])
def test_neighbours_are_the_most_alike(ratings: dict[str, np.ndarray], most: int, shrink: float, damp: float) -> None:
    offsets, item, deviation = ratings["offsets"], ratings["item"], ratings["rating"] - 3.1
    deviation.setflags(write=False)
    expert = np.arange(12, dtype=np.int32)
    expert.setflags(write=False)
    everybody = Ratings(offsets, item, deviation, expert)
    out = nearest(most, shrink, damp, everybody, everybody, 9)
    spans = [slice(offsets[a], offsets[a + 1]) for a in range(12)]
    known = [dict(zip(item[s].tolist(), deviation[s].tolist(), strict=True)) for s in spans]
    for u in range(12):
        like = {}
        for v in set(range(12)) - {u}:
            both = sorted(set(known[u]) & set(known[v]))
            x, y = (np.array([known[w][i] for i in both]) for w in (u, v))
            if len(both) > 1 and x.any() and y.any():
                like[v] = x @ y / np.sqrt(x @ x * (y @ y)) * (len(both) - 1) / (len(both) - 1 + shrink)
        for i in range(9):
            near = sorted((v for v in like if like[v] > 0 and i in known[v]), key=lambda v: -like[v])[:most]
            wanted = sum(like[v] * known[v][i] for v in near) / (sum(like[v] for v in near) + damp) if near else 0.0
            assert out[u, i] == pytest.approx(wanted, abs=1e-12)
