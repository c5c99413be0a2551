"""Scores of bradley_terry on the Elo scale, and around an anchor."""

from __future__ import annotations

import evalica
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import distagg
from distagg.errors import UsageError

BATTLES = {"winner": list("aaabbbccadcb"), "loser": list("bbcaccabdaad")}


def ranked(**settings):
    table = distagg.rank("bradley_terry", pd.DataFrame(BATTLES), errors="standard", **settings)
    return table.set_index("item")[["score", "uncertainty", "low", "high"]].sort_index()


def test_elo_is_400_over_ln_10_around_1000():
    log, elo, other = ranked(), ranked(scale="elo"), ranked(scale="elo", base=1500.0)
    unit = 400 / np.log(10)
    np.testing.assert_allclose(elo["score"], 1000 + unit * log["score"])
    np.testing.assert_allclose(elo["uncertainty"], unit * log["uncertainty"])
    np.testing.assert_allclose(elo["low"], 1000 + unit * log["low"])
    np.testing.assert_allclose(other["high"], 500 + elo["high"])


def test_gaps_are_those_of_evalicas_strengths():
    found = distagg.rank("bradley_terry", pa.table(BATTLES), prior="none", scale="elo", tolerance=1e-12)
    ours = dict(zip(found["item"].to_pylist(), found["score"].to_pylist(), strict=True))
    peer = evalica.bradley_terry(
        BATTLES["winner"], BATTLES["loser"], [evalica.Winner.X] * len(BATTLES["winner"]), tolerance=1e-14, limit=10_000
    ).scores
    for name in "bcd":
        assert ours[name] - ours["a"] == pytest.approx(400 * np.log10(peer[name] / peer["a"]), abs=1e-4)


def test_an_anchor_moves_all_scores_and_intervals_alike():
    elo, moved = ranked(scale="elo"), ranked(scale="elo", anchor="c:1200")
    assert moved["score"]["c"] == pytest.approx(1200)
    shift = 1200 - elo["score"]["c"]
    for name in ("score", "low", "high"):
        np.testing.assert_allclose(moved[name], elo[name] + shift)
    np.testing.assert_allclose(moved["uncertainty"], elo["uncertainty"])
    assert ranked(anchor="a:0")["score"]["a"] == 0


@pytest.mark.parametrize("anchor", ["c", "c:", ":1200", "c:much", "c:inf"])
def test_a_malformed_anchor_is_refused(anchor):
    with pytest.raises(UsageError, match="expected NAME:VALUE"):
        ranked(anchor=anchor)


def test_an_unknown_anchor_is_refused_by_name():
    with pytest.raises(UsageError, match="unknown anchor of query all: 'cc'; did you mean 'c'"):
        ranked(anchor="cc:1200")
