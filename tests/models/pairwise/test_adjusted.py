"""bradley_terry with covariates: equal to peers, the same bits everywhere, and what it refuses."""

import numpy as np
import pyarrow as pa
import pytest
from sided import LENGTH, POSITION, most_likely, simulated

from distagg import rank, solve
from distagg.covariates import Covariate
from distagg.dataset import Dataset, write_dataset
from distagg.dataset.frames import TableSource, dataset_from_arrow
from distagg.errors import InputError, UsageError
from distagg.models import model_named
from distagg.models.pairwise import adjusted
from distagg.models.pairwise.adjusted_kernels import Battles, Blocks, battle_slopes, place

# statsmodels 0.15: Logit(first side won, [differences of items but the first, length / 100, 1]).fit(tol=1e-13) on
# simulated(3000, items=6, seed=7): params and bse, in our units.
GAPS = [0.143025996, -0.370458635, -0.974240373, -0.489914508, -1.124390699]
COEFFICIENTS = {"length": (0.00400624413, 0.00024846875), "position": (0.362909616, 0.041303455)}
LIKELIHOOD = -1759.31123253


def scores(result, items):
    by_name = dict(zip(result.ranking["item"].to_pylist(), result.ranking["score"].to_pylist(), strict=True))
    return np.array([by_name[f"m{i}"] for i in range(items)])


def coefficients(result):
    return {row["covariate"]: row for row in result.coefficients.to_pylist()}


def test_strengths_coefficients_and_errors_are_those_of_statsmodels():
    result = solve(
        "bradley_terry", simulated(3000, items=6, seed=7).dataset(), covariates="length,position", prior="none"
    )
    gaps = scores(result, 6)
    assert gaps[1:] - gaps[0] == pytest.approx(GAPS, abs=1e-7)
    assert result.fits["likelihood"][0].as_py() == pytest.approx(LIKELIHOOD, abs=1e-6)
    for name, row in coefficients(result).items():
        assert (row["coefficient"], row["error"]) == pytest.approx(COEFFICIENTS[name], rel=1e-7)
        assert row["odds_ratio"] == pytest.approx(np.exp(row["coefficient"]))
        assert (row["low"] + row["high"]) / 2 == pytest.approx(row["coefficient"])
    assert result.converged


@pytest.mark.parametrize(("ties", "share"), [("half", 0.5), ("ignore", 0.0)])
@pytest.mark.parametrize("weight", [0.0, 3.0])
def test_fits_are_those_of_a_general_minimiser(ties, share, weight):
    battles = simulated(800, items=5, seed=1, ties=0.2)
    prior = {"prior": "gaussian", "weight": weight} if weight else {"prior": "none"}
    result = solve("bradley_terry", battles.dataset(), covariates="length,position", ties=ties, **prior)
    strength, by = most_likely(battles, weight, share)
    found = scores(result, 5)
    assert found - found.mean() == pytest.approx(strength, abs=2e-6)
    assert [row["coefficient"] for row in result.coefficients.to_pylist()] == pytest.approx(by, abs=2e-6)


def test_planted_effects_are_found_and_strengths_freed_of_them():
    battles = simulated(20_000, items=8, seed=3)
    result = solve("bradley_terry", battles.dataset(), covariates="length,position", errors="standard")
    for name, planted in (("length", LENGTH), ("position", POSITION)):
        row = coefficients(result)[name]
        assert abs(row["coefficient"] - planted) < 4 * row["error"]
    found = scores(result, 8)
    assert np.abs(found - found.mean() - battles.strength).max() < 0.1


def test_an_unneeded_column_changes_little():
    """Noise as covariate: scores, weight of the prior and errors stay near those without it."""
    battles = simulated(5000, items=6, seed=5)
    noise = np.random.default_rng(0).normal(size=5000)
    table = battles.table().append_column("noise", [noise])
    plain = solve("bradley_terry", table, errors="standard")
    adjusted = solve("bradley_terry", table, errors="standard", covariates="noise")
    assert scores(adjusted, 6) == pytest.approx(scores(plain, 6), abs=5e-3)
    assert adjusted.fits["weight"][0].as_py() == pytest.approx(plain.fits["weight"][0].as_py(), rel=0.02)
    assert adjusted.ranking["uncertainty"].to_numpy() == pytest.approx(
        plain.ranking["uncertainty"].to_numpy(), rel=0.05
    )


def random_battles(draw, count, items, covariates):
    winner = draw.integers(0, items, count).astype(np.int32)
    loser = ((winner + draw.integers(1, items, count)) % items).astype(np.int32)
    arrays = (winner, loser, draw.random(count), draw.random(count) < 0.3, draw.normal(size=(covariates, count)))
    for array in arrays:
        array.setflags(write=False)
    return Battles(*arrays)


def distinct(battles, items):
    pairs = sorted(
        {(min(i, j), max(i, j)) for i, j in zip(battles.winner.tolist(), battles.loser.tolist(), strict=True)}
    )
    offsets = np.searchsorted([low for low, _ in pairs], np.arange(items + 1)).astype(np.int64)
    return offsets, np.array([high for _, high in pairs], dtype=np.int32)


def sums_at(battles, share, point, scale, items):
    count, (offsets, other) = len(scale), distinct(battles, items)
    sums = Blocks(*(np.zeros(s) for s in (items + count, len(other), (items, count), (count, count), 1)))
    battle_slopes(battles, share, point[:items].copy(), point[items:].copy(), scale, offsets, other, sums)
    return sums


@pytest.mark.parametrize("items", [7, 2100])  # in a square, and by a search among the distinct pairs
def test_slopes_are_those_of_a_naive_twin(items):
    draw = np.random.default_rng(items)
    battles, scale = random_battles(draw, 333, items, 3), np.array([1.0, 0.5, 2.0])
    point = draw.normal(size=items + 3)
    sums = sums_at(battles, 0.5, point, scale, items)
    x = np.zeros((333, items + 3))
    x[np.arange(333), battles.winner] += 1
    x[np.arange(333), battles.loser] -= 1
    x[:, items:] = (battles.covariates * scale[:, None]).T
    gap, y = x @ point, np.where(battles.tie, 0.5, 1.0)
    p = 1 / (1 + np.exp(-gap))
    hessian = x.T @ (x * (battles.weight * p * (1 - p))[:, None])
    offsets, other = distinct(battles, items)
    low = np.repeat(np.arange(items), np.diff(offsets))
    assert sums.value[0] == pytest.approx((battles.weight * (np.logaddexp(0, gap) - y * gap)).sum())
    assert sums.slope == pytest.approx(x.T @ (battles.weight * (p - y)), abs=1e-12)
    assert sums.curve == pytest.approx(-hessian[low, other], abs=1e-12)
    assert sums.cross == pytest.approx(hessian[:items, items:], abs=1e-12)
    assert sums.square == pytest.approx(hessian[items:, items:], abs=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_gradient_and_hessian_by_finite_differences(share):
    draw = np.random.default_rng(2)
    battles, scale, step = random_battles(draw, 200, 4, 2), np.array([1.0, 3.0]), 1e-5
    point = 0.5 * draw.normal(size=6)
    here = sums_at(battles, share, point, scale, 4)
    for k in range(6):
        around = [sums_at(battles, share, point + sign * step * np.eye(6)[k], scale, 4) for sign in (1, -1)]
        value, slope = ((around[0][at] - around[1][at]) / (2 * step) for at in (4, 0))
        assert value[0] == pytest.approx(here.slope[k], abs=1e-6)
        assert slope[4:] == pytest.approx(here.square[k - 4] if k >= 4 else here.cross[k], abs=1e-6)


def test_distinct_pairs_are_found():
    offsets, other = np.array([0, 3, 3, 4], dtype=np.int64), np.array([1, 4, 9, 3], dtype=np.int32)
    assert [place(offsets, other, *pair) for pair in ((0, 1), (0, 4), (0, 9), (2, 3))] == [0, 1, 2, 3]


def split_dataset(folder, battles, block_entries):
    table = battles.table()
    held = battles.dataset()
    source = TableSource(held.to_arrow(), covariates=held.manifest.covariates)
    source.partition = "expert"
    write_dataset(source, folder, block_entries=block_entries)
    assert len(table) == held.manifest.entries
    return Dataset.open(folder)


def test_a_split_query_has_the_same_fit_and_bits_on_any_number_of_workers(tmp_path, clusters, monkeypatch):
    battles = simulated(3000, items=6, seed=4, ties=0.1)
    settings = {"covariates": "length,position", "errors": "standard"}
    whole = solve("bradley_terry", battles.dataset(), **settings)
    dataset = split_dataset(tmp_path / "d", battles, 400)
    monkeypatch.setattr("distagg.dataset.dataset.CHUNK_ENTRIES", 400)
    monkeypatch.setattr(Dataset.plan, "__defaults__", (400,))
    assert len(dataset.plan()) > 4
    inline = solve("bradley_terry", dataset, **settings)
    assert inline.ranking["item"].to_pylist() == whole.ranking["item"].to_pylist()
    assert inline.ranking["score"].to_numpy() == pytest.approx(whole.ranking["score"].to_numpy(), abs=1e-8)
    cluster = solve("bradley_terry", dataset, runner=clusters(2), **settings)
    assert cluster.ranking.equals(inline.ranking)
    assert cluster.coefficients.equals(inline.coefficients)


@pytest.mark.parametrize("prior", [{"prior": "none"}, {"prior": "gaussian", "weight": 2.0}])
def test_large_chunks_start_near_the_end_and_end_at_the_same_point(tmp_path, monkeypatch, prior):
    """Fits of some battles of every chunk are the start: fewer rounds, and the fit of all battles."""
    battles = simulated(40_000, items=6, seed=4, ties=0.1)
    dataset = split_dataset(tmp_path / "d", battles, 10_000)
    monkeypatch.setattr(Dataset.plan, "__defaults__", (10_000,))
    rounds, slopes = [], adjusted.NewtonRound.finish
    monkeypatch.setattr(adjusted.NewtonRound, "finish", lambda *given: rounds.append(1) or slopes(*given))
    settings = {"covariates": "length,position", "errors": "standard", **prior}
    plain = solve("bradley_terry", dataset, **settings)
    first = len(rounds)
    monkeypatch.setattr(adjusted, "LARGE", 1000)
    near = solve("bradley_terry", dataset, **settings)
    assert len(rounds) - first < first
    assert near.ranking["score"].to_numpy() == pytest.approx(plain.ranking["score"].to_numpy(), abs=1e-8)
    for one, other in zip(near.coefficients.to_pylist(), plain.coefficients.to_pylist(), strict=True):
        assert one["coefficient"] == pytest.approx(other["coefficient"], rel=1e-7)
        assert one["error"] == pytest.approx(other["error"], rel=1e-5)
    assert near.fits["likelihood"][0].as_py() == pytest.approx(plain.fits["likelihood"][0].as_py(), abs=1e-6)
    assert near.converged


def test_a_chunk_without_use_for_a_fit_of_its_own_gives_no_start():
    """A column that is 0 in a chunk, or few battles for many items: the start is then that of the counts."""
    chunk = next(simulated(400, items=6, seed=4).dataset().select(covariates="length,position").chunks())
    model = model_named("bradley_terry", {"covariates": "length,position"})
    held, pulled = adjusted.own_fit(model, chunk, {}, np.ones(2))
    assert not held.any()
    assert not pulled.any()
    assert len(held) == chunk.n_items + 2


def test_queries_are_fitted_apart():
    one, other = simulated(600, items=4, seed=8), simulated(600, items=5, seed=9)
    tables = [each.table().append_column("query", [[name] * 600]) for name, each in (("a", one), ("b", other))]
    both = solve("bradley_terry", pa.concat_tables(tables), covariates="length,position", errors="standard")
    for name, each in (("a", one), ("b", other)):
        alone = solve("bradley_terry", each.table(), covariates="length,position", errors="standard")
        mine = [row for row in both.coefficients.to_pylist() if row.pop("query") == name]
        expected = [{k: v for k, v in row.items() if k != "query"} for row in alone.coefficients.to_pylist()]
        assert mine == expected
        own = both.ranking.filter(pa.compute.equal(both.ranking["query"], name))
        assert own["score"].to_pylist() == alone.ranking["score"].to_pylist()


def with_column(values, count=400, **settings):
    battles = simulated(count, items=4, seed=6)
    table = battles.table().append_column("x", [values(battles)])
    return solve("bradley_terry", table, covariates="x,length", **settings)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda b: np.zeros(400), "covariate x: found 0 in every battle"),
        (lambda b: np.where(b.first_won, 2.0, -1.0), "covariate x: .*separates winners from losers"),
        (lambda b: 1.0 * b.first - b.second, "covariate x: found the same value for an item"),
        (lambda b: 2.0 * b.length, "covariate length: found a combination of x and the items"),
        (lambda b: np.where(b.first_won, 1.0, -1.0) * 50 - b.length, "covariate .*separate winners from losers"),
    ],
)
@pytest.mark.parametrize("prior", ["none", "gaussian"])
def test_columns_without_a_coefficient_are_refused_by_name(values, message, prior):
    with pytest.raises(InputError, match=message) as caught:
        with_column(values, prior=prior)
    assert "leave it out" in str(caught.value)


def test_unbeaten_items_are_refused_as_without_covariates():
    table = pa.table({"model_a": ["x", "x", "y", "z"], "model_b": ["y", "z", "z", "y"], "winner": ["model_a"] * 4})
    table = table.append_column("t", [[1.0, -1.0, 2.0, -1.0]])
    with pytest.raises(InputError, match="1 unbeaten"):
        solve("bradley_terry", table, covariates="t", prior="none")
    assert solve("bradley_terry", table, covariates="t").converged


@pytest.mark.parametrize(
    "settings",
    [{"ties": "davidson"}, {"prior": "gamma"}, {"solver": "mm", "prior": "none"}, {"errors": "bootstrap"}],
)
def test_settings_that_covariates_exclude(settings):
    with pytest.raises(UsageError, match="covariates cannot be fitted with"):
        model_named("bradley_terry", {"covariates": "x", **settings})


def test_categories_and_relative_differences():
    battles = simulated(3000, items=4, seed=2)
    language = np.random.default_rng(0).choice(["en", "de", "fr"], 3000)
    table = battles.table().append_column("language", [language])
    result = solve("bradley_terry", table, covariates="relative(length_a-length_b),language", prior="none")
    # the same columns, made by hand
    a, b = table["length_a"].to_numpy(), table["length_b"].to_numpy()
    by_hand = {"r": (a - b) / (np.abs(a) + np.abs(b)), "en": 1.0 * (language == "en"), "fr": 1.0 * (language == "fr")}
    for name, values in by_hand.items():
        table = table.append_column(name, [values])
    again = solve("bradley_terry", table, covariates="r,en,fr", prior="none")
    assert list(coefficients(result)) == ["relative(length_a-length_b)", "language=en", "language=fr"]
    assert result.coefficients["coefficient"].equals(again.coefficients["coefficient"])


def test_covariates_that_the_data_lack():
    dataset = simulated(50).dataset("length")
    with pytest.raises(UsageError, match="the dataset keeps length; import the pairs again"):
        solve("bradley_terry", dataset, covariates="position")
    with pytest.raises(UsageError, match="belong to pairs"):
        solve("bradley_terry", {"a": {"q": {"x": 1.0, "y": 2.0}}}, covariates="position")


def test_answers_in_kind():
    frame = simulated(300).table().to_pandas()
    ranking = rank("bradley_terry", frame, covariates="length,position")
    assert type(ranking) is type(frame)
    assert "score" in ranking


def test_half_life_is_a_weight():
    table = pa.table({"winner": ["x", "y", "x", "z", "y"], "loser": ["y", "x", "z", "y", "z"]})
    days = [f"2026-01-0{day}" for day in (1, 2, 3, 4, 5)]
    weights = [2.0 ** -(age / 2) for age in (4, 3, 2, 1, 0)]
    aged = solve("bradley_terry", table.append_column("time", [days]), half_life="2d")
    weighted = solve("bradley_terry", table.append_column("weight", [weights]))
    assert aged.ranking.equals(weighted.ranking)
    earlier = solve("bradley_terry", table.append_column("time", [days]), half_life="2d", now="2026-01-07", weight=1.0)
    half = solve("bradley_terry", table.append_column("weight", [[w / 2 for w in weights]]), weight=1.0)
    assert earlier.ranking.equals(half.ranking)


def test_a_covariate_weighs_with_the_age_of_its_battle():
    battles = simulated(500, items=4, seed=11)
    draw = np.random.default_rng(1)
    age = draw.integers(0, 100, 500)
    age[0] = 0
    day = (np.datetime64("2026-06-01") - age).astype("datetime64[D]")
    aged = solve("bradley_terry", battles.table().append_column("date", [day]), covariates="position", half_life="30d")
    weight = np.exp2(-age / 30)
    weighted = solve("bradley_terry", battles.table().append_column("weight", [weight]), covariates="position")
    assert aged.coefficients["coefficient"].to_numpy() == pytest.approx(weighted.coefficients["coefficient"].to_numpy())


def test_strengths_and_coefficients_change_signs_if_winners_become_losers():
    battles = simulated(500, items=4, seed=12)
    result = solve("bradley_terry", battles.dataset("length"), covariates="length", prior="none")
    stored = battles.dataset("length").to_arrow()
    swapped = {"loser": "winner", "winner": "loser", "length_loser": "length_winner", "length_winner": "length_loser"}
    table = pa.table({name: stored[other] for name, other in swapped.items()})
    dataset = dataset_from_arrow(table, covariates=(Covariate("length", ("a", "b")),))
    again = solve("bradley_terry", dataset, covariates="length", prior="none")
    one, other = (each.coefficients["coefficient"][0].as_py() for each in (result, again))
    assert one == pytest.approx(-other, abs=1e-9)
    assert scores(result, 4) == pytest.approx(-scores(again, 4), abs=1e-8)
