"""Standard errors and bootstrap intervals of bradley_terry and thurstone."""

import numpy as np
import pytest
from battles import TIED, WON, big_chunk, big_pairs, chunk_of, minus_likelihood, naive_quasi_errors, solved
from strategies import Query, build_chunk


@pytest.mark.parametrize("prior", ["none", "gaussian"])
@pytest.mark.parametrize(
    ("name", "ties"), [("bradley_terry", "davidson"), ("bradley_terry", "half"), ("thurstone", "half")]
)
def test_standard_errors_are_of_the_numeric_hessian(name, ties, prior):
    """Without ties, or where their likelihood is known; half wins vary less (``test_covariance``)."""
    learned = ties == "davidson"
    tied = TIED if learned else np.zeros((4, 4), int).tolist()
    found = solved(name, chunk_of(WON, tied), ties=ties, prior=prior, weight=0.7, errors="standard")
    at = np.append(found.score, np.log(found.queries["tie"])) if learned else found.score

    def objective(x):
        return minus_likelihood(x, name, ties, WON, tied) + (0.35 * np.sum(x[:4] ** 2) if prior == "gaussian" else 0.0)

    unit, h = np.eye(len(at)), 1e-4
    hessian = np.array([
        [
            (objective(at + h * (a + b)) - objective(at + h * (a - b)) - objective(at - h * (a - b))
             + objective(at - h * (a + b))) / (4 * h * h)
            for a in unit
        ]
        for b in unit
    ])  # fmt: skip
    basis = np.zeros((len(at), len(at) - 1))  # scores that sum to 0
    basis[:4, :3] = np.vstack([np.eye(3), -np.ones(3)])
    if learned:
        basis[4, 3] = 1.0
    covariance = basis @ np.linalg.inv(basis.T @ hessian @ basis) @ basis.T
    np.testing.assert_allclose(found.items["uncertainty"], naive_quasi_errors(covariance[:4, :4]), rtol=1e-4)
    assert found.items["high"] - found.score == pytest.approx(1.959964 * found.items["uncertainty"])


def test_gamma_errors_are_those_of_the_uncentred_mode():
    """Two components of different level, and an item alone."""
    won = np.zeros((5, 5), int)
    won[0, 1], won[1, 0], won[2, 3], won[3, 2] = 3, 1, 1, 1
    found = solved("bradley_terry", chunk_of(won.tolist()), prior="gamma", errors="standard")
    strength = 2 * np.exp(found.score[:2]) / np.exp(found.score[:2]).sum()
    p = 1 / (1 + np.exp(found.score[1] - found.score[0]))
    curve = 4 * p * (1 - p)
    hessian = np.array([[curve + strength[0], -curve], [-curve, curve + strength[1]]])
    covariance = np.linalg.inv(hessian)
    expected = np.sqrt((np.trace(covariance) - 2 * covariance[0, 1]) / 2)  # two share the variance of their gap
    np.testing.assert_allclose(found.items["uncertainty"][:2], expected)
    assert found.items["uncertainty"][4] == 1.0


def test_the_bootstrap_is_near_the_standard_errors_and_knows_its_seed():
    _, winner, loser = big_pairs(size=6, count=600, seed=2)
    chunk = big_chunk(6, winner, loser)
    standard = solved("bradley_terry", chunk, errors="standard").items
    once, again = (solved("bradley_terry", chunk, errors="bootstrap", seed=1).items for _ in range(2))
    other = solved("bradley_terry", chunk, errors="bootstrap", seed=2).items
    np.testing.assert_array_equal(once["low"], again["low"])
    assert (once["low"] != other["low"]).any()
    np.testing.assert_allclose(once["uncertainty"], standard["uncertainty"], rtol=0.25)
    np.testing.assert_allclose(once["low"], standard["low"], atol=0.15)
    assert (once["low"] < once["high"]).all()


def test_bootstrap_intervals_cover_the_truth():
    inside = []
    for seed in range(12):
        truth, winner, loser = big_pairs(size=8, count=400, seed=100 + seed)
        found = solved("bradley_terry", big_chunk(8, winner, loser), errors="bootstrap", resamples=60, level=0.9)
        inside += ((found.items["low"] <= truth) & (truth <= found.items["high"])).tolist()
    assert 0.78 < np.mean(inside) <= 0.99


def test_a_resample_draws_whole_lists_by_query_not_by_chunk():
    queries = [Query(3, {e: {e % 3: 1, (e + 1) % 3: 2} for e in range(5)}) for _ in range(3)]
    chunk = build_chunk(queries)
    together = solved("bradley_terry", chunk, errors="bootstrap", resamples=10).items
    for q in range(3):
        alone = solved("bradley_terry", chunk.select(np.arange(3) == q), errors="bootstrap", resamples=10).items
        for column in ("uncertainty", "low", "high"):
            np.testing.assert_array_equal(alone[column], together[column][3 * q : 3 * q + 3])


def battles_with(newcomer):
    """Six models that met often, and perhaps a newcomer that won its only two battles."""
    _, winner, loser = big_pairs(size=6, count=600, seed=2)
    pairs = [(int(i), int(j), 1.0, False) for i, j in zip(winner, loser, strict=True)]
    more = [(6, 0, 1.0, False), (6, 1, 1.0, False)] if newcomer else []
    return build_chunk([Query(6 + bool(newcomer), pairs=[*pairs, *more])])


@pytest.mark.parametrize("name", ["bradley_terry", "thurstone", "plackett_luce"])
def test_a_newcomer_leaves_scores_and_errors_of_others_where_they_were(name):
    before, after = (solved(name, battles_with(newcomer), errors="standard") for newcomer in (False, True))
    np.testing.assert_allclose(after.score[:6], before.score, atol=0.03)
    np.testing.assert_allclose(after.items["uncertainty"][:6], before.items["uncertainty"], rtol=0.05)
    assert after.items["uncertainty"][6] > 3 * after.items["uncertainty"][:6].max()


def test_errors_of_two_items_add_up_to_the_error_of_their_gap():
    """Of many items with very different numbers of comparisons, to a tenth."""
    draw = np.random.default_rng(1)
    size = 200
    shares = 1 / np.arange(1, size + 1)
    i, j = (draw.choice(size, 20_000, p=shares / shares.sum()) for _ in range(2))
    pairs = [(int(a), int(b), 1.0, False) for a, b in zip(i, j, strict=True) if a != b]
    found = solved("bradley_terry", build_chunk([Query(size, pairs=pairs)]), errors="standard", weight=1.0)
    gap = found.score[[p[0] for p in pairs]] - found.score[[p[1] for p in pairs]]
    curve = 1 / (2 + np.exp(gap) + np.exp(-gap))
    information = np.eye(size)
    for (a, b, _, _), c in zip(pairs, curve, strict=True):
        information[[a, b], [a, b]] += c
        information[[a, b], [b, a]] -= c
    covariance = np.linalg.inv(information)
    wanted = np.diag(covariance)[:, None] + np.diag(covariance) - 2 * covariance
    errors = found.items["uncertainty"]
    off = np.abs(np.sqrt(errors[:, None] ** 2 + errors**2) / np.sqrt(wanted + np.eye(size)) - 1)
    assert off[np.triu_indices(size, 1)].max() < 0.1


def test_a_resample_without_an_item_says_nothing_of_it():
    """The newcomer is missing in one of seven resamples: they are not draws of a score of 0."""
    found = solved("plackett_luce", battles_with(newcomer=True), errors="bootstrap", resamples=50)
    count = found.items["resamples"]
    assert (count[:6] == 50).all()
    assert 35 < count[6] < 50
    assert found.items["low"][6] > 0.3


@pytest.mark.parametrize("name", ["bradley_terry", "thurstone"])
def test_the_bootstrap_of_an_unbeaten_newcomer_is_as_wide_as_its_standard_error(name):
    """It wins in every resample: all the spread there can be is that of the prior, which is drawn again."""
    chunk = battles_with(newcomer=True)
    drawn, standard = (solved(name, chunk, errors=errors).items for errors in ("bootstrap", "standard"))
    assert 120 < drawn["resamples"][6] < 200
    np.testing.assert_allclose(drawn["uncertainty"][6], standard["uncertainty"][6], rtol=0.3)


def test_an_item_in_no_resample_has_an_infinite_interval():
    found = solved("bradley_terry", build_chunk([Query(3, pairs=[(0, 1, 1.0, False)] * 4)]), errors="bootstrap")
    assert found.items["resamples"].tolist() == [200, 200, 0]
    assert (found.items["low"][2], found.items["high"][2]) == (-np.inf, np.inf)
