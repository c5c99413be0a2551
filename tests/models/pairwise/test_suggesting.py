"""suggest: its mathematics against dense twins, what it asks first, and that its answers tell more than random ones."""

import itertools
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from battles import TIED, WON, big_chunk, big_pairs, chunk_of
from strategies import Query, build_chunk

import distagg
from distagg.cli.main import main
from distagg.errors import UsageError
from distagg.models.pairwise.counts import Counting
from distagg.models.pairwise.covariance import curvature
from distagg.models.pairwise.model import BradleyTerry
from distagg.models.pairwise.suggesting import suggest_pairs
from distagg.models.pairwise.suggesting_kernels import answered, choose_pairs, information


def mean_information(gap, variance, tie):
    """Minus the mean second derivative of the log likelihood over a normal gap, by many nodes."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    d = gap + np.sqrt(variance) * nodes
    up, down = np.exp(d / 2), np.exp(-d / 2)
    z = up + down + tie
    return float(((up + down) / z - ((up - down) / z) ** 2) @ weights / weights.sum() / 4)


@pytest.mark.parametrize("tie", [0.0, 0.8])
@pytest.mark.parametrize("gap", [0.0, 0.7, -2.0])
def test_information_is_the_mean_over_the_uncertain_gap(gap, tie):
    assert information(gap, 0.0, tie) == pytest.approx(mean_information(gap, 0.0, tie), rel=1e-12)
    assert information(gap, 0.5, tie) == pytest.approx(mean_information(gap, 0.5, tie), rel=0.1)
    assert information(gap, 3.0, tie) == pytest.approx(mean_information(gap, 3.0, tie), rel=0.25)


def drawn_covariance(size, seed=0):
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T / size + 0.1 * np.eye(size)


def test_an_answer_updates_the_covariance_as_the_inverse_does():
    covariance = drawn_covariance(6)
    along = np.eye(6)[1] - np.eye(6)[4]
    expected = np.linalg.inv(np.linalg.inv(covariance) + 0.3 * np.outer(along, along))
    answered(covariance, 1, 4, 0.3)
    np.testing.assert_allclose(covariance, expected, atol=1e-12)


def naive_choice(score, covariance, tie, component, count):
    """Every pair looked at again with a fresh inverse, every time."""
    precision, component, chosen = np.linalg.inv(covariance), list(component), []
    for _ in range(count):
        c, joining = np.linalg.inv(precision), len(set(component)) > 1
        best = (-1.0, 0, 0, 0.0)
        for i, j in itertools.combinations(range(len(score)), 2):
            if (i, j) in [row[:2] for row in chosen] or (joining and component[i] == component[j]):
                continue
            v = c[i, i] + c[j, j] - 2 * c[i, j]
            w = information(score[i] - score[j], v, tie)
            best = max(best, (np.log2(1 + w * v) / 2, -i, -j, w))
        i, j = -best[1], -best[2]
        along = np.eye(len(score))[i] - np.eye(len(score))[j]
        precision = precision + best[3] * np.outer(along, along)
        component = [component[i] if own == component[j] else own for own in component] if joining else component
        chosen.append((i, j, best[0], joining))
    return chosen


@pytest.mark.parametrize("groups", [[0] * 7, [0, 0, 1, 1, 2, 2, 2]])
def test_the_batch_is_that_of_a_naive_greedy_choice(groups):
    score, covariance = np.random.default_rng(1).normal(size=7), drawn_covariance(7)
    expected = naive_choice(score, covariance, 0.3, groups, 8)
    component = np.array(groups, dtype=np.int32)
    one, other, gain, joins = choose_pairs(score, covariance.copy(), 0.3, component, len(set(groups)), 8)
    assert list(zip(one, other, joins, strict=True)) == [(i, j, join) for i, j, _, join in expected]
    np.testing.assert_allclose(gain, [row[2] for row in expected], atol=1e-9)


def test_gains_fall_and_no_pair_comes_twice():
    _, winner, loser = big_pairs(12, 100)
    model, chunk = BradleyTerry(), big_chunk(12, winner, loser)
    (found,) = suggest_pairs(model, model.counting(chunk).count(chunk), 1000)
    assert len({*zip(found.one, found.other, strict=True)}) == len(found.one) == 66
    assert (np.diff(found.gain) <= 1e-12).all()
    assert not found.joins.any()


def test_the_covariance_is_that_of_the_curvature():
    model, chunk = BradleyTerry(ties="davidson"), chunk_of(WON, TIED)
    counts = Counting(0, False, 0.5).count(chunk)
    graph = model.examine(counts)
    outcome, eta = model.fitted(counts, graph)
    bent = curvature(counts, 0, graph.component, outcome.score, eta[0], model.terms(outcome))
    c = np.linalg.inv(bent.information)[:4, :4]
    (found,) = suggest_pairs(model, counts, 6)
    for i, j, error in zip(found.one, found.other, found.error, strict=True):
        assert error**2 == pytest.approx(c[i, i] + c[j, j] - 2 * c[i, j])
    assert ((found.chance > 0.5) == (found.gap > 0)).all()


def battles(*rows):
    return pa.table(dict(zip(("winner", "loser"), map(list, zip(*rows, strict=True)), strict=True)))


def test_components_are_joined_first():
    table = distagg.suggest(battles("ab", "ba", "cd", "dc", "ef"), 4).to_pylist()
    assert [row["joins"] for row in table] == [True, True, False, False]
    groups = [{*"ab"}, {*"cd"}, {*"ef"}]
    for row in table[:2]:
        first, second = (next(g for g in groups if row[side] in g) for side in ("item_a", "item_b"))
        assert first is not second
        groups = [g for g in groups if g not in (first, second)] + [first | second]
    assert len(groups) == 1


def test_thin_items_are_asked_before_those_with_a_thousand_battles():
    rows = [pair for pair in ("ab", "ba", "ac", "ca", "bc", "cb") for _ in range(200)]
    first = distagg.suggest(battles(*rows, "ad"), 1).to_pylist()[0]
    assert "d" in (first["item_a"], first["item_b"])


def test_frames_are_answered_in_kind_and_lists_are_refused():
    frame = pd.DataFrame({"model_a": ["x", "y"], "model_b": ["y", "z"], "winner": ["model_a", "tie"]})
    assert isinstance(distagg.suggest(frame, 2), pd.DataFrame)
    with pytest.raises(UsageError, match="suggest takes pairs"):
        distagg.suggest(pa.table({"expert": ["e", "e"], "item": ["x", "y"], "rank": [1, 2]}))
    with pytest.raises(UsageError, match="n: found 0"):
        distagg.suggest(frame, 0)


def test_ties_alone_still_give_suggestions():
    table = pa.table({"winner": ["a", "b"], "loser": ["b", "c"], "tie": [True, True]})
    assert distagg.suggest(table, 1)["bits"][0].as_py() > 0


def test_queries_share_the_suggestions():
    pairs = [
        {"query": q, "winner": w, "loser": x} for q, n in (("much", 50), ("little", 1)) for w, x in ["ab", "ba"] * n
    ]
    table = distagg.suggest(pa.Table.from_pylist(pairs), 1)
    assert table["query"].to_pylist() == ["little"]


def test_too_many_items_are_refused():
    chunk = build_chunk([Query(5001, pairs=[(0, 1, 1.0, False)])])
    model = BradleyTerry()
    with pytest.raises(UsageError, match="has 5,001 items"):
        suggest_pairs(model, model.counting(chunk).count(chunk), 1)


def test_the_command_prints_and_writes(tmp_path, capsys):
    file = tmp_path / "battles.csv"
    file.write_text("winner,loser\na,b\nb,c\nc,d\n")
    assert main(["suggest", str(file), "-n", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "query,item_a,item_b,bits,joins,chance,gap,error"
    assert len(lines) == 4
    assert main(["suggest", str(file), "-n", "99", "-o", str(tmp_path / "next.csv")]) == 0
    assert "found only 6 pairs" in capsys.readouterr().err
    assert (tmp_path / "next.csv").read_text().splitlines()[:4] == lines
    assert main(["suggest", str(file), "-n", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["suggestions"]) == 2


def test_suggested_battles_tell_more_than_random_ones(load_job):
    """A small version of jobs/bench/suggest.py."""
    taus = load_job("bench/suggest.py").taus
    runs = {how: [taus(seed, 16, 16, 4, suggested=how)[-1] for seed in range(6)] for how in (True, False)}
    assert np.mean(runs[True]) > np.mean(runs[False]) + 0.02
