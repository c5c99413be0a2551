"""elo and glicko2: against evalica, Glickman's worked example, and plain replays."""

import math
from datetime import UTC, datetime, timedelta

import evalica
import numpy as np
import pyarrow as pa
import pytest
import scipy.optimize
from battles import by_evalica, drawn_battles
from strategies import Query, build_chunk

from distagg import solve
from distagg.dataset import Dataset
from distagg.errors import UsageError
from distagg.models import model_named
from distagg.models.replayed.kernels import GLICKO, Battles, Players, next_volatility, replay_glicko, volatility_slope

START = datetime(2026, 1, 1, tzinfo=UTC)


def battles_on(days, rows):
    """A dataset of battles (winner, loser, tie), each on a day."""
    winner, loser, tie = zip(*rows, strict=True)
    times = pa.array([START + timedelta(days=day) for day in days], pa.timestamp("us", "UTC"))
    return Dataset.from_arrow(pa.table({"winner": winner, "loser": loser, "tie": tie, "time": times}))


def ratings(name, dataset, **settings):
    table = solve(name, dataset, **settings).ranking
    return dict(zip(table["item"].to_pylist(), table["score"].to_pylist(), strict=True))


def test_elo_is_evalicas():
    pairs = [(i, j, 1.0, tie) for i, j, _, tie in drawn_battles(2)]
    found = model_named("elo", {"k": 30, "base": 1500}).score(build_chunk([Query(12, pairs=pairs)]), {})
    expected, _ = by_evalica(evalica.elo, pairs, 12, k=30, initial=1500)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_elo_is_a_plain_replay_in_which_weights_multiply_k():
    pairs, rating = drawn_battles(3, size=6, count=40), dict.fromkeys(range(6), 1000.0)
    for i, j, weight, tie in pairs:
        chance = 1 / (1 + 10 ** ((rating[j] - rating[i]) / 200))
        step = 20 * weight * ((0.5 if tie else 1.0) - chance)
        rating[i], rating[j] = rating[i] + step, rating[j] - step
    found = model_named("elo", {"k": 20, "scale": 200}).score(build_chunk([Query(6, pairs=pairs)]), {})
    np.testing.assert_allclose(found, list(rating.values()), atol=1e-9)


def test_battles_are_replayed_in_the_order_of_their_times():
    rows = [("a", "b", False), ("b", "c", False), ("c", "a", False), ("a", "c", True)]
    days = [3, 0, 2, 1]
    late = ratings("elo", battles_on(days, rows))
    sorted_rows = [row for _, row in sorted(zip(days, rows, strict=True))]
    assert late == ratings("elo", battles_on([0, 0, 0, 0], sorted_rows))  # without times, the rows of the source
    assert late != ratings("elo", battles_on([0, 1, 2, 3], rows))


def test_glickmans_worked_example():
    """Glickman 2013: 1500 (200, 0.06) beats 1400 (30), loses to 1550 (100) and to 1700 (300), tau 0.5."""
    rating = (np.array([1500.0, 1400.0, 1550.0, 1700.0]) - 1500) / GLICKO
    deviation = np.array([200.0, 30.0, 100.0, 300.0]) / GLICKO
    players = Players(rating, deviation, np.full(4, 0.06), np.full(4, -1), np.zeros(4), np.zeros(4))
    battles = Battles(np.array([0, 2, 3]), np.array([1, 0, 0]), np.ones(3), np.zeros(3, dtype=bool))
    replay_glicko(battles, np.zeros(3, dtype=np.int64), 0.5, 350 / GLICKO, players)
    assert 1500 + GLICKO * players.rating[0] == pytest.approx(1464.06, abs=0.01)
    assert GLICKO * players.deviation[0] == pytest.approx(151.52, abs=0.01)
    assert players.volatility[0] == pytest.approx(0.05999, abs=1e-5)


def naive_glicko(rows, start=(1500.0, 350.0, 0.06), tau=0.5):
    """Period after period, everybody in each, with a general solver for the volatility; rows of (period, i, j, tie)."""
    state, known = {}, []
    for period in range(max(row[0] for row in rows) + 1):
        here = [row[1:] for row in rows if row[0] == period]
        known += [i for row in here for i in row[:2] if i not in known]
        before = {i: state.get(i, (0.0, start[1] / GLICKO, start[2])) for i in known}
        for i in known:
            mu, phi, sigma = before[i]
            met = [(j, 0.5 if tie else 1.0) for a, j, tie in here if a == i]
            met += [(a, 0.5 if tie else 0.0) for a, j, tie in here if j == i]
            if not met:
                state[i] = mu, min(math.hypot(phi, sigma), start[1] / GLICKO), sigma
                continue
            g = [1 / math.sqrt(1 + 3 * before[j][1] ** 2 / math.pi**2) for j, _ in met]
            chance = [1 / (1 + math.exp(-a * (mu - before[j][0]))) for a, (j, _) in zip(g, met, strict=True)]
            v = 1 / sum(a * a * e * (1 - e) for a, e in zip(g, chance, strict=True))
            gain = sum(a * (s - e) for a, e, (_, s) in zip(g, chance, met, strict=True))
            a = math.log(sigma**2)
            root = scipy.optimize.brentq(
                lambda x, d=v * gain, v=v, phi=phi, a=a: volatility_slope(x, a, phi, d, v, tau), a - 20, a + 20
            )
            sigma = math.exp(root / 2)
            phi = 1 / math.sqrt(1 / (phi**2 + sigma**2) + 1 / v)
            state[i] = mu + phi**2 * gain, phi, sigma
    return {i: (start[0] + GLICKO * mu, GLICKO * phi) for i, (mu, phi, _) in state.items()}


def test_periods_by_time_are_those_of_a_plain_replay():
    """With idle items, whose deviations grow, and an empty period."""
    names, draw = "abcde", np.random.default_rng(0)
    days = np.sort(draw.choice([*range(9), *range(15, 30)], 40))
    rows = [
        (*map(str, draw.choice(list(names[: 3 + (day > 20) * 2]), 2, replace=False)), draw.random() < 0.2)
        for day in days
    ]
    first = int(days[0])
    expected = naive_glicko([((int(day) - first) // 3, *row) for day, row in zip(days, rows, strict=True)])
    found = solve("glicko2", battles_on(days.tolist(), rows), period="3d").ranking.to_pylist()
    for row in found:
        assert (row["score"], row["uncertainty"]) == pytest.approx(expected[row["item"]], rel=1e-6)
        assert row["low"] == pytest.approx(row["score"] - 1.959964 * row["uncertainty"])


def test_periods_by_number_of_battles_and_one_for_all():
    rows = [("a", "b", False), ("b", "c", False), ("c", "a", False), ("a", "c", True), ("b", "a", False)]
    untimed = Dataset.from_arrow(pa.table(dict(zip(("winner", "loser", "tie"), zip(*rows, strict=True), strict=True))))
    for period, numbers in (("2", [0, 0, 1, 1, 2]), ("all", [0] * 5), ("auto", [0] * 5)):
        expected = naive_glicko([(n, *row) for n, row in zip(numbers, rows, strict=True)])
        found = ratings("glicko2", untimed, period=period)
        assert found == pytest.approx({item: rating for item, (rating, _) in expected.items()}, rel=1e-6)
    with pytest.raises(UsageError, match="period=7d needs times of battles"):
        solve("glicko2", untimed, period="7d")


@pytest.mark.parametrize(("delta", "variance"), [(-0.48, 1.78), (5.0, 0.3), (0.0, 2.0)])
def test_the_volatility_is_the_root_of_glickmans_function(delta, variance):
    new = next_volatility(1.15, 0.06, delta, variance, 0.5)
    assert volatility_slope(math.log(new**2), math.log(0.06**2), 1.15, delta, variance, 0.5) == pytest.approx(
        0, abs=1e-6
    )


@pytest.mark.parametrize("name", ["elo", "glicko2"])
def test_planted_strengths_are_followed(name):
    draw = np.random.default_rng(0)
    truth, pairs = np.linspace(-2, 2, 10), []
    for _ in range(3000):
        i, j = draw.choice(10, 2, replace=False)
        ahead = draw.random() < 1 / (1 + np.exp(truth[j] - truth[i]))
        pairs.append((int(i if ahead else j), int(j if ahead else i), 1.0, False))
    settings = {"period": "300"} if name == "glicko2" else {}
    score = model_named(name, settings).score(build_chunk([Query(10, pairs=pairs)]), {})
    assert np.corrcoef(score, truth)[0, 1] > 0.95


def test_what_is_no_period_is_refused_and_lists_too():
    for period in ("0", "seven", "-1d"):
        with pytest.raises(UsageError, match="parameter period of glicko2"):
            model_named("glicko2", {"period": period})
    lists = Dataset.from_arrow(pa.table({"expert": ["e", "e"], "item": ["x", "y"], "rank": [1, 2]}))
    with pytest.raises(UsageError, match="elo takes pairs, but the dataset holds lists"):
        solve("elo", lists)
