"""jobs/reproduce on synthetic data: what is there is not measured again, and pages show what was measured."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from strategies import Query, build_chunk

from distagg.dataset import Dataset
from distagg.engine.fitting.folds import make_folds
from distagg.errors import UsageError
from jobs.reproduce import __main__ as reproduce
from jobs.reproduce import (
    experiments,
    experts,
    letor,
    letter,
    paper_completions,
    plan,
    procedures,
    rules,
    stagg,
    store,
)
from jobs.reproduce.experiments import Experiment
from tests.reports.reading import Report

Capture = pytest.CaptureFixture[str]
SMALL = letor.Letor(
    "Table 5, three rows", ("borda", "rrf", "crf"), (letor.Says("CRF is above both", "crf", ("borda", "rrf")),)
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One table of three models, and a figure of one of them."""
    weights = next(one for one in experts.ITEMS if one.name == "volkovs2014-figure11")
    few = {"reciprocal": 0, "rounds": 3, "keep": "last"}  # 300 rounds take half a minute
    monkeypatch.setitem(plan.ROWS, "crf, as the paper", ("crf", few))
    monkeypatch.setattr(experts, "PLAIN", few)
    monkeypatch.setattr(reproduce, "ITEMS", [letor.item("volkovs2014-table5", SMALL), weights])


def run(planted: Path, output: Path, *more: str) -> int:
    return reproduce.main(["--mq2008", str(planted), "--data", "none", "-o", str(output), "--workers", "1", *more])


@pytest.mark.usefixtures("small")
def test_a_run_ends_in_pages_of_what_was_measured(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    assert run(planted, tmp_path) == 0
    said = capsys.readouterr()
    assert "6 to measure" in said.err
    assert "MQ2007-agg: not there" in said.err
    assert [line.split()[:2] for line in said.out.splitlines()[2:]] == [
        ["volkovs2014-table5", "done"],
        ["volkovs2014-figure11", "done"],
    ]

    index = Report((tmp_path / "index.html").read_text())
    assert {str(attributes.get("href")) for tag, attributes in index.tags if tag == "a"} == {
        "volkovs2014-table5.html",
        "volkovs2014-figure11.html",
    }
    told = [row[:3] for row in index.tables["Tables and figures"]]
    assert told[1] == ["Volkovs & Zemel 2014, Table 5", "Table 5, three rows", "done without MQ2007-agg"]
    assert ["Volkovs & Zemel 2013, Figure 1", "the same as Volkovs & Zemel 2014, Figure 11", "done"] in told

    page = Report((tmp_path / "volkovs2014-table5.html").read_text())
    lines = page.tables["MQ2008-agg"]
    for model in SMALL.rows:
        means = json.loads((tmp_path / "results" / f"mq2008-{model}.json").read_text())["found"]["means"]
        at = [line[0] for line in lines].index(model)
        paper, *again, ours, difference = (line[2:] for line in lines[at : at + (3 if model == "rrf" else 5)])
        assert paper == [f"{value:.2f}" for value in plan.PAPERS["letor"]["mq2008"][model]]
        assert ours == [f"{100 * means[metric]:.2f}" for metric in experiments.LETOR]
        worst = float(difference[4].replace("−", "-").rstrip("▾▴"))
        assert worst == pytest.approx(float(ours[4]) - float(paper[4]), abs=0.006)
        assert difference[4].endswith("▾") == (worst < -0.5)
        assert difference[4].endswith("▴") == (worst > 0.5)
        if again:
            (experiment,) = plan.row_experiments(plan.Plan(("mq2008",)), "mq2008", plan.PROCEDURES["letor"][model])
            kept = store.Store(tmp_path / "results", {"mq2008": planted}).load(experiment)
            assert kept is not None
            assert again[0] == [f"{100 * kept['found']['means'][metric]:.2f}" for metric in experiments.LETOR]
    assert len(Report((tmp_path / "volkovs2014-figure11.html").read_text()).pictures) == 1

    # Again: nothing is measured; after one result is lost or made by other code, that one is.
    assert run(planted, tmp_path) == 0
    assert "6 of 6 results are there" in capsys.readouterr().err
    (tmp_path / "results" / "mq2008-rrf.json").unlink()
    other = tmp_path / "results" / "mq2008-borda.json"
    kept = json.loads(other.read_text())
    other.write_text(json.dumps(kept | {"key": kept["key"] | {"code": "other"}}))
    assert run(planted, tmp_path, "--only", "table5") == 0
    said = capsys.readouterr()
    assert "3 of 5 results are there" in said.err
    assert "drawn by an earlier run" in said.out
    assert 'href="volkovs2014-figure11.html"' in (tmp_path / "index.html").read_text()
    assert run(planted, tmp_path, "--again", "volkovs2014-figure11") == 0
    assert "5 of 6 results are there" in capsys.readouterr().err


@pytest.mark.usefixtures("small")
def test_wrong_use_is_refused(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    assert run(planted, tmp_path, "--only", "table99") == 2
    assert "volkovs2014-table5" in capsys.readouterr().err
    assert run(planted, tmp_path, "--seeds", "0") == 2
    assert reproduce.main(["--data", str(tmp_path), "-o", str(tmp_path)]) == 2
    assert "no data in" in capsys.readouterr().err


def test_what_fails_does_not_stop_the_rest(planted: Path, tmp_path: Path) -> None:
    kept, told = store.Store(tmp_path, {"mq2008": planted}), []
    todo = [
        Experiment("bad", "model_row", "mq2008", {"model": "rrf", "settings": {"c": -1}}, cost=2.0),
        Experiment("good", "model_row", "mq2008", {"model": "rrf", "settings": {}}),
    ]
    failed = store.measure_all(kept, todo, 1, lambda one, took: told.append((one.name, took)))
    assert list(failed) == ["bad"]
    assert "found -1" in failed["bad"]
    assert [name for name, _ in told] == ["good", "bad"]  # the longest first
    assert kept.load(todo[0]) is None
    assert kept.load(todo[1]) is not None
    assert kept.load(dataclasses.replace(todo[1], settings={"model": "rrf", "settings": {"c": 10}})) is None


def test_two_processes_measure_what_one_does(planted: Path, tmp_path: Path) -> None:
    todo = [
        Experiment(f"rrf {c}", "model_row", "mq2008", {"model": "rrf", "settings": {"c": c}}, alone=c == 60)
        for c in (10, 60)
    ]
    found = []
    for workers in (1, 2):
        kept = store.Store(tmp_path / str(workers), {"mq2008": planted})
        assert store.measure_all(kept, todo, workers, lambda one, took: None) == {}
        found.append([(kept.load(one) or {})["found"] for one in todo])
    assert found[0] == found[1]


def test_models_that_draw_are_run_for_every_seed() -> None:
    wanted = plan.Plan(("mq2008",), seeds=3)
    assert len(plan.row_experiments(wanted, "mq2008", "borda")) == 1
    seeds = [one.settings["settings"].get("seed", 0) for one in plan.row_experiments(wanted, "mq2008", "crf")]
    assert seeds == [0, 1, 2]
    same = [plan.row_experiments(wanted, "mq2008", row) for row in ("cps, theta=learn", "cps theta=learn")]
    assert same[0] == same[1]  # rows of two tables, measured once

    def found(one: Experiment) -> dict[str, object]:
        value = 0.4 + 0.1 * one.settings["settings"].get("seed", 0)
        return {"means": {"map": value}, "queries": {"map": [value, value]}}

    row = plan.measured(wanted, found, "mq2008", "crf")
    assert row.means["map"] == pytest.approx(50.0)
    assert row.spread["map"] == pytest.approx(10.0)
    assert row.queries["map"] == pytest.approx([0.5, 0.5])


def test_every_table_and_figure_of_the_papers_has_a_page() -> None:
    wanted = {"Volkovs & Zemel 2014": (range(1, 7), (3, 4, 7, 8, 9, 10, 11)), "Volkovs & Zemel 2013": ((2, 3), (1, 2))}
    wanted |= {"Volkovs & Zemel 2012": ((1, 2, 3), (3, 4, 5)), "Niu et al. 2013": ((1,), (1, 2, 3, 4))}
    printed = {plan.spoken(one.name) for one in reproduce.ITEMS}
    printed |= {again.partition(" (")[0] for one in reproduce.ITEMS for again in one.again}
    for paper, both in wanted.items():
        for kind, numbers in zip(("Table", "Figure"), both, strict=True):
            assert {f"{paper}, {kind} {n}" for n in numbers} <= printed


def test_metrics_are_those_of_stochastic_aggregation() -> None:
    """Equations 5 to 7, place by place; six items: NDCG@10 is 0 by the script's rule."""
    labels = [0, 2, 1, 0, 0, 1]
    scores = np.array([0.5, 0.4, 0.9, 0.1, 0.2, 0.3])
    found = experiments.paper_metrics(build_chunk([Query(6, labels=labels)]), scores, 2)[0]
    ranked = [labels[i] for i in np.argsort(-scores)]
    err, goes_on = 0.0, 1.0
    for r, y in enumerate(ranked, start=1):
        err, goes_on = err + goes_on * (2**y - 1) / 4 / r, goes_on * (1 - (2**y - 1) / 4)
    rbp = sum(0.05 * y * 0.95 ** (r - 1) for r, y in enumerate(ranked, start=1))
    named = dict(zip(experiments.METRICS, found, strict=True))
    assert [named["err"], named["rbp"]] == pytest.approx([err, rbp])
    assert named["ndcg@10"] == 0.0


def test_lists_are_read_from_their_last_item(planted: Path) -> None:
    dataset = Dataset.open(planted)
    forward, turned = list(dataset.chunks()), list(experiments.turned_round(dataset).chunks())
    for before, after in zip(forward, turned, strict=True):
        for start, end in zip(before.entry_offsets[:-1], before.entry_offsets[1:], strict=True):
            np.testing.assert_array_equal(after.entry_item[start:end], before.entry_item[start:end][::-1])
            np.testing.assert_array_equal(after.entry_rank[start:end], np.arange(1, end - start + 1))
    straight, backwards = (experiments.model_row(dataset, "borda", {}, turn)["means"]["map"] for turn in (False, True))
    assert backwards < straight - 0.1  # the experts of the planted set know something


def test_points_of_niu_et_al() -> None:
    """Three items: n + 1 - place for listed items, nothing for others; queries and experts add up apart."""
    chunk = build_chunk([Query(3, {0: {1: 1.0, 0: 2.0}, 1: {1: 1.0}}), Query(2, {0: {1: 1.0, 0: 2.0}})], n_experts=2)
    np.testing.assert_array_equal(rules.points(chunk), [2, 6, 0, 1, 2])


def test_wins_less_losses_are_counted_pair_by_pair() -> None:
    random = np.random.default_rng(3)
    ranks = [{e: {i: float(random.integers(1, 9)) for i in random.permutation(4)[:3]} for e in range(3)} for _ in "ab"]
    chunk = build_chunk([Query(4, lists) for lists in ranks], n_experts=3)
    expected = [
        sum(np.sign(sum(of[j] - of[i] for of in lists.values() if i in of and j in of)) for j in range(4) if j != i)
        for lists in ranks
        for i in range(4)
    ]
    np.testing.assert_array_equal(rules.net_wins(chunk), expected)
    assert any(expected)


def test_the_first_step_of_svp_projects_mean_differences() -> None:
    """By the eigenvectors of the Hermitian matrix i Y, those of the eigenvalues of largest size."""
    random = np.random.default_rng(4)
    ranks = [{e: {i: float(random.integers(1, 30)) for i in random.permutation(6)[:4]} for e in range(5)} for _ in "ab"]
    found = rules.projection(build_chunk([Query(7, lists) for lists in ranks], n_experts=5)).reshape(2, 7)
    for lists, scores in zip(ranks, found, strict=True):
        matrix = np.zeros((7, 7))
        for i, j in np.ndindex(7, 7):
            gaps = [of[j] - of[i] for of in lists.values() if i in of and j in of]
            matrix[i, j] = np.mean(gaps) if gaps else 0.0
        values, vectors = np.linalg.eigh(1j * matrix)
        ends = [0, 6]
        nearest = np.real(-1j * (vectors[:, ends] * values[ends]) @ vectors[:, ends].conj().T)
        np.testing.assert_allclose(scores[:6], nearest.mean(axis=1)[:6], atol=1e-9)
        assert scores[6] == -np.inf  # in no list


def test_singular_vectors_by_the_letter_are_those_of_the_pair_matrix() -> None:
    """Of each list's matrix, by numpy: vectors of length 1, no singular values, the missing-expert bias as it is."""
    lists = {0: {0: 2.0, 3: 5.0, 1: 9.0, 4: 30.0}, 1: {2: 1.0, 0: 7.0}}
    found = letter.PlainSvd().prepare(build_chunk([Query(5, lists)], n_experts=2))
    for expert, ranks in lists.items():
        matrix = np.zeros((5, 5))
        for i, j in np.ndindex(5, 5):
            if i in ranks and j in ranks and ranks[i] < ranks[j]:
                matrix[i, j] = np.log(ranks[j] / ranks[i]) / np.log(max(ranks.values()))
        u, _, v = np.linalg.svd(matrix)
        rows = found["expert"] == expert
        items = found["item"][rows]
        np.testing.assert_allclose(found["values"][rows, 0], np.abs(u[items, 0]), atol=1e-9)
        np.testing.assert_allclose(found["values"][rows, 2], np.abs(v[0, items]), atol=1e-9)
        np.testing.assert_array_equal(found["values"][rows][:, [1, 3]], [[0.0, -1.0]] * len(ranks))


def test_adherence_counts_differences_of_ranks() -> None:
    """The first list has 3 of 3 + 8 on the right side, of pairs 1 of 2; the second no pair of different labels."""
    query = Query(4, {0: {1: 1.0, 0: 4.0, 2: 12.0}, 1: {1: 1.0, 2: 2.0}}, labels=[0, 1, 1, 0])
    chunk = build_chunk([query, query], n_experts=2)
    np.testing.assert_array_equal(letter.count_shares(chunk, chunk.labels), [3 / 11, np.nan] * 2)
    straight = Query(4, {0: {1: 1.0, 0: 4.0}, 1: {0: 1.0, 1: 3.0}}, labels=[0, 1, 1, 0])
    learning = letter.CountAdherence().learning(2, {})
    learned = learning.finish(learning.map(build_chunk([straight], n_experts=2)))
    np.testing.assert_array_equal(learned["expert_theta"], [1.0, 0.0])


def test_what_learns_alone_sees_no_validation_part(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def fit(model: object, train: Dataset, *, valid: Dataset | None, **more: object) -> dict[str, np.ndarray]:
        seen.append(valid)
        return {"expert_theta": np.ones(len(train.experts))}

    monkeypatch.setattr(experiments, "fit", fit)
    for alone in (True, False):
        experiments.model_row(Dataset.open(planted), "count_adherence", {}, alone=alone)
    assert seen[:5] == [None] * 5
    assert None not in seen[5:]
    (row,) = plan.ALONE
    assert {one.settings["alone"] for one in plan.rows_experiments(plan.Plan(("mq2008",)), [row])} == {True}


def test_what_is_judged_blind_sees_no_test_part(planted: Path) -> None:
    dataset = Dataset.open(planted)
    for fold, blind in zip(make_folds(dataset, "letor5"), experiments.blind_folds(dataset), strict=True):
        taught, chose, judged = (part.where.parts or frozenset() for part in (blind.train, blind.valid, blind.test))
        assert (len(taught), len(chose)) == (2, 1)
        assert taught | chose == fold.train.where.parts
        assert judged == fold.valid.where.parts
    rows = [row for rows in procedures.KEPT.values() for row in rows]
    assert {one.settings["blind"] for one in plan.rows_experiments(plan.Plan(("mq2008",)), rows)} == {True}
    found = experiments.model_row(dataset, "crf", {"rounds": 2, "keep": "last"}, blind=True)
    seen = experiments.model_row(dataset, "crf", {"rounds": 2, "keep": "last"})
    assert found["means"]["map"] > 0.5  # the experts of the planted set know something
    assert found["means"] != seen["means"]


def test_places_take_the_place_of_ranks(planted: Path) -> None:
    dataset = Dataset.open(planted)
    for before, after in zip(dataset.chunks(), experiments.placed(dataset, backwards=False).chunks(), strict=True):
        np.testing.assert_array_equal(after.entry_item, before.entry_item)
        for start, end in zip(before.entry_offsets[:-1], before.entry_offsets[1:], strict=True):
            np.testing.assert_array_equal(after.entry_rank[start:end], np.arange(1, end - start + 1))


def test_every_procedure_is_of_a_row_that_a_paper_prints() -> None:
    for table, rows in plan.PROCEDURES.items():
        for row, procedure in rows.items():
            assert row in plan.PAPERS[table]["mq2008"]
            assert procedure in plan.ROWS
    assert set(plan.STOP) <= set(plan.ROWS) >= plan.BACKWARDS
    assert set(plan.BY_DATA) <= set(plan.ROWS)
    gamma = [given for model, given in plan.ROWS.values() if "mpm" in model and given.get("solver") == "gradient"]
    assert gamma  # the paper's MPM has variances in all its experiments
    assert all(given["variance"] for given in gamma)


def test_draws_of_experts(planted: Path) -> None:
    query = Query(3, {0: {0: 1.0, 1: 2.0}, 2: {2: 1.0}, 3: {1: 4.0, 2: 6.0}})
    some = experiments.of_experts(build_chunk([query, Query(2, {2: {1: 1.0}})], n_experts=4), np.array([2, 3]))
    same = build_chunk([Query(3, {2: {2: 1.0}, 3: {1: 4.0, 2: 6.0}}), Query(2, {2: {1: 1.0}})], n_experts=4)
    for name in ("list_offsets", "list_expert", "entry_offsets", "entry_item", "entry_rank"):
        np.testing.assert_array_equal(getattr(some, name), getattr(same, name))
    found = experiments.robustness(Dataset.open(planted), "borda", 3, 0)["sizes"]
    assert {size: len(draws) for size, draws in found.items()} == {"5": 3, "10": 3, "15": 3, "20": 3}
    assert np.mean(found["20"]) > np.mean(found["5"])  # more experts know more
    turned = experiments.robustness(Dataset.open(planted), "borda", 3, 0, {"discount": False}, backwards=True)["sizes"]
    assert np.mean(turned["20"]) < np.mean(found["20"])


def test_the_page_of_draws_says_who_is_ahead() -> None:
    """Made-up draws in which stagg_bc is ahead and stagg_rrf is not."""

    def found(one: Experiment) -> dict[str, object]:
        noise = np.random.default_rng(0).normal(0.0, 0.1, (2, 20))
        rise = {"stagg_bc": 3.0, "stagg_rrf": -3.0}.get(str(one.settings["model"]), 0.0)
        return {"sizes": {"5": (40 + rise + 9 * noise[0]).tolist(), "20": (45 + rise + noise[1]).tolist()}}

    drawn = stagg.figure4(plan.Plan(("mq2008",)), found)
    assert [claim.verdict for claim in drawn.claims] == ["holds in part", "holds"] * 2  # by defaults, and as the paper
    assert (drawn.claims[0].held, drawn.claims[0].of) == (2, 4)


def test_only_known_words_name_items() -> None:
    assert [one.name for one in reproduce.chosen("figure3", "--only")] == ["volkovs2014-figure3", "niu2013-figure3"]
    with pytest.raises(UsageError, match="no table or figure"):
        reproduce.chosen("table", "--only")


def small_ratings() -> np.ndarray:
    """12 users, 9 items, a third of the ratings missing; one item that a single user rated."""
    draw = np.random.default_rng(0)
    ratings = draw.integers(1, 6, (12, 9)).astype(np.float64)
    ratings[draw.random((12, 9)) < 0.35] = np.nan
    ratings[1:, 8], ratings[0, 8] = np.nan, 5.0
    return ratings


def test_factors_minimise_the_objective_without_mean_and_offsets() -> None:
    ratings, weight = small_ratings(), 2.0

    def errors(user: np.ndarray, item: np.ndarray) -> np.ndarray:
        return np.nan_to_num(user @ item.T - ratings)

    def objective(user: np.ndarray, item: np.ndarray) -> float:
        return float((errors(user, item) ** 2).sum() + weight * ((user**2).sum() + (item**2).sum()))

    factors = [
        paper_completions.factor_products(ratings, factors=2, weight=weight, passes=passes, seed=1)
        for passes in (1, 2, 5, 20, 4000)
    ]
    values = [objective(*both) for both in factors]
    assert values == sorted(values, reverse=True)
    user, item = factors[-1]
    left = errors(user, item)
    assert left @ item + weight * user == pytest.approx(np.zeros_like(user), abs=1e-6)  # the gradient
    assert left.T @ user + weight * item == pytest.approx(np.zeros_like(item), abs=1e-6)
    again = paper_completions.factor_products(ratings, factors=2, weight=weight, passes=5, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(factors[2], again, strict=True))


def test_borda_count_puts_equal_ratings_in_the_order_of_items() -> None:
    ratings = np.array([[5.0, 4.0, 5.0, 1.0], [3.0, 5.0, 3.0, 5.0]])  # places 1 3 2 4, then 3 1 4 2
    assert paper_completions.borda_order(ratings).tolist() == [0, 1, 2, 3]
    assert paper_completions.borda_order(ratings[:, ::-1]).tolist() == [1, 0, 2, 3]


@pytest.mark.parametrize("least", [1, 4])
def test_neighbours_are_those_of_a_slow_loop(least: int) -> None:
    ratings = small_ratings()
    users, items = ratings.shape
    rated = [{i: ratings[u, i] for i in range(items) if not np.isnan(ratings[u, i])} for u in range(users)]

    def similarity(a: int, b: int) -> float:
        products = sum(rating * rated[b][i] for i, rating in rated[a].items() if i in rated[b])
        return float(products / np.sqrt(sum(x**2 for x in rated[a].values()) * sum(x**2 for x in rated[b].values())))

    expected = np.full(ratings.shape, np.nanmean(ratings))
    for u, i in np.ndindex(users, items):
        who = [v for v in range(users) if v != u and i in rated[v] and similarity(u, v) > 0.0]
        if len(who) >= least:
            expected[u, i] = np.average([rated[v][i] for v in who], weights=[similarity(u, v) for v in who])
    found = paper_completions.neighbours(ratings, least=least)
    assert found == pytest.approx(expected)
    assert (found[:, 8] == np.nanmean(ratings)).all() == (least > 1)  # one rater is not enough
