"""Boards: from battles of any kind to a table, chances, groups and the comparison graph."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from battles import big_pairs

import distagg
from distagg.dataset import write_dataset
from distagg.engine.dask import local_cluster
from distagg.engine.data import as_dataset
from distagg.engine.leaderboard import board_model, boards, boards_by, periods
from distagg.errors import UsageError
from distagg.models.pairwise.connection import thinnest_link
from distagg.sources.observed_pairs import PairsSource

NAMES = [f"model-{n}" for n in range(8)]


def battles(count: int = 800, seed: int = 0, ties: float = 0.2) -> pd.DataFrame:
    _, winner, loser = big_pairs(size=8, count=count, seed=seed)
    draw = np.random.default_rng(seed)
    days = pd.Timestamp("2026-01-05") + pd.to_timedelta(draw.integers(0, 100, count), unit="D")
    return pd.DataFrame(
        {
            "winner": [NAMES[n] for n in winner], "loser": [NAMES[n] for n in loser],
            "tie": draw.random(count) < ties, "time": days.astype(str),
        }
    )  # fmt: skip


def test_a_board_counts_what_happened_and_agrees_with_rank() -> None:
    frame = battles()
    board = distagg.board(frame)
    table = board.table.set_index("item")
    for name in NAMES:
        mine = frame[(frame.winner == name) | (frame.loser == name)]
        won = int(((mine.winner == name) & ~mine.tie).sum())
        tied = int(mine.tie.sum())
        assert table.battles[name] == len(mine)
        assert (table.won[name], table.tied[name]) == (won, tied)
        assert table.win_rate[name] == pytest.approx((won + tied / 2) / len(mine))
    ranked = distagg.rank("bradley_terry", frame, scale="elo").set_index("item")
    np.testing.assert_allclose(table.score, ranked.score[table.index])
    assert board.table["rank"].tolist() == list(range(1, 9))
    assert (table.low < table.score).all()
    assert (table.score < table.high).all()


def test_chances_are_those_of_the_elo_gaps_and_sum_to_one() -> None:
    board = distagg.board(battles())
    score = board.table.set_index("item").score
    matrix = board.matrix.set_index("item")
    np.testing.assert_allclose(matrix + matrix.T.loc[matrix.index, matrix.columns], 1.0)
    for one, other in itertools.permutations(NAMES[:3], 2):
        expected = 1 / (1 + 10 ** ((score[other] - score[one]) / 400))
        assert board.chance(one, other) == pytest.approx(expected) == matrix.loc[one, other]
    with pytest.raises(UsageError, match="unknown item 'model-9'"):
        board.chance("model-9", "model-1")


@pytest.mark.parametrize("ties", ["half", "ignore", "davidson", "rao_kupper"])
@pytest.mark.parametrize("errors", ["standard", "bootstrap"])
def test_groups_partition_the_board_and_follow_its_ranks(ties: str, errors: str) -> None:
    board = distagg.board(battles(2000), ties=ties, errors=errors, resamples=40)
    table = board.table
    assert sorted(item for group in board.groups for item in group) == sorted(NAMES)
    for number, group in enumerate(board.groups, 1):
        rows = table[table.item.isin(group)]
        assert set(rows.group) == {number}
        assert rows.rank_low.nunique() == 1
    assert ((table.rank_low <= table["rank"]) & (table["rank"] <= table.rank_high)).all()
    assert sum(number for _, _, number in zip(*board.links["edges"], strict=True)) == pytest.approx(
        2000 - (ties == "ignore") * table.tied.sum() / 2
    )


def test_an_anchor_has_its_score_and_no_interval() -> None:
    table = distagg.board(battles(), anchor="model-3:1200").table.set_index("item")
    assert (table.score["model-3"], table.low["model-3"], table.high["model-3"]) == (1200, 1200, 1200)
    plain = distagg.board(battles()).table.set_index("item")
    np.testing.assert_allclose(table.score - plain.score[table.index], 1200 - plain.score["model-3"])
    pd.testing.assert_series_equal(table.rank_low, plain.rank_low)


def test_thin_items_stay_in_the_fit_and_leave_the_board(caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.concat(
        [battles().drop(columns="time"), pd.DataFrame({"winner": ["new"], "loser": ["model-1"], "tie": [False]})]
    )
    everybody, fewer = distagg.board(frame), distagg.board(frame, min_battles=5)
    assert "left out 1 of 9 items with fewer than 5 battles" in caplog.text
    kept = everybody.table[everybody.table.item != "new"]
    assert fewer.table.item.tolist() == kept.item.tolist()
    np.testing.assert_allclose(fewer.table.score, kept.score)
    assert fewer.table.rank_high.max() == 8
    with pytest.raises(UsageError, match="no item has 5,000 battles"):
        distagg.board(frame, min_battles=5000)


def test_frames_come_back_in_kind_and_names_stay_numbers() -> None:
    frame = pd.DataFrame({"winner": [1, 1, 2, 3, 1], "loser": [2, 3, 3, 1, 2]})
    board = distagg.board(frame)
    assert isinstance(board.table, pd.DataFrame)
    assert board.table.item.dtype == np.int64
    assert {item for group in board.groups for item in group} == {1, 2, 3}
    assert isinstance(distagg.board(pl.from_pandas(frame)).matrix, pl.DataFrame)
    assert isinstance(distagg.board(pa.Table.from_pandas(frame)).table, pa.Table)
    with pytest.raises(dataclasses.FrozenInstanceError):
        board.query = "other"  # type: ignore[misc]


def test_several_queries_are_a_choice() -> None:
    frame = pd.concat([battles(200).assign(query="code"), battles(200, seed=1).assign(query="prose")])
    with pytest.raises(UsageError, match=r"found 2 queries .code, prose, ....*query=NAME"):
        distagg.board(frame)
    alone = distagg.board(battles(200, seed=1).assign(query="prose"))
    chosen = distagg.board(frame, query="prose")
    np.testing.assert_allclose(chosen.table.score, alone.table.score)
    with pytest.raises(UsageError, match="unknown query 'verse'"):
        distagg.board(frame, query="verse")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "borda"}, "found borda, expected bradley_terry or thurstone"),
        ({"errors": "none"}, "a board has intervals"),
        ({"anchor": "nobody:1000"}, "unknown anchor"),
        ({"level": 1.5}, "level"),
    ],
)
def test_what_no_board_can_be_made_of_is_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        distagg.board(battles(50), **settings)


def test_lists_are_refused() -> None:
    with pytest.raises(UsageError, match="found lists"):
        distagg.board({"bm25": {"q": {"x": 1.0, "y": 0.5}}})


def test_thurstone_has_a_board_on_its_own_scale() -> None:
    board = distagg.board(battles(), model="thurstone")
    score = board.table.set_index("item").score
    gap = score["model-1"] - score["model-2"]
    assert board.chance("model-1", "model-2") == pytest.approx(0.5 + 0.5 * math.erf(gap / 2))


@pytest.mark.cluster
def test_a_split_dataset_gives_the_board_of_a_frame_here_and_on_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Battles of many judges on disk, in several chunks, here and on workers: counts add up."""
    frame = battles(3000).drop(columns="time")
    frame["expert"] = [f"judge-{n % 50}" for n in range(len(frame))]
    frame.to_csv(tmp_path / "battles.csv", index=False)
    write_dataset(PairsSource([tmp_path / "battles.csv"]), tmp_path / "battles", block_entries=500)
    dataset = distagg.Dataset.open(tmp_path / "battles")
    monkeypatch.setattr(distagg.Dataset.plan, "__defaults__", (600,))
    assert len(dataset.plan()) > 2
    model = board_model("bradley_terry", {"anchor": "model-0:1000"}, None)
    plain = distagg.board(frame, anchor="model-0:1000").table.sort_values("item")
    here = boards(model, dataset)[0].table.to_pandas().sort_values("item")
    for name in ("score", "low", "high", "battles", "rank_low", "rank_high"):
        np.testing.assert_allclose(here[name], plain[name], atol=1e-5)
    with local_cluster(2) as runner:
        there = boards(model, dataset, runner=runner)[0]
    pd.testing.assert_frame_equal(there.table.to_pandas().sort_values("item"), here)


def test_every_month_has_the_board_of_its_battles() -> None:
    frame = battles(3000)
    dataset = as_dataset(frame)
    model = board_model("bradley_terry", {}, None)
    assert [name for name, _, _ in periods(dataset, "month")] == ["2026-01", "2026-02", "2026-03", "2026-04"]
    assert len(periods(dataset, "week")) == 15
    assert [name for name, _, _ in periods(dataset, "year")] == ["2026"]
    found = dict(boards_by(model, dataset, "month", query="all"))
    for month, board in found.items():
        alone = distagg.board(frame[frame.time.str.startswith(month)]).table.set_index("item")
        table = board.table.to_pandas().set_index("item")
        np.testing.assert_allclose(table.score, alone.score[table.index])
        np.testing.assert_allclose(table.battles, alone.battles[table.index])
    later = dataset.select(since="2026-02-10", until="2026-03-20")
    assert [name for name, _, _ in periods(later, "month")] == ["2026-02", "2026-03"]
    assert (
        sum(board.table["battles"].to_numpy().sum() for _, board in boards_by(model, later, "month", query="all")) / 2
        == ((frame.time >= "2026-02-10") & (frame.time < "2026-03-20")).sum()
    )


def test_battles_without_times_have_no_months() -> None:
    with pytest.raises(UsageError, match="needs battles with a column time"):
        periods(as_dataset(battles(20).drop(columns="time")), "month")


def brute_force_link(size: int, low: np.ndarray, high: np.ndarray, number: np.ndarray) -> float:
    """The smallest conductance of any cut into two parts of at least two items."""
    degree = np.bincount(low, number, size) + np.bincount(high, number, size)
    best = np.inf
    for part in range(1, 2**size - 1):
        side = np.array([part >> n & 1 for n in range(size)], dtype=bool)
        if 2 <= side.sum() <= size - 2:
            cut = number[side[low] != side[high]].sum()
            best = min(best, cut / min(degree[side].sum(), degree[~side].sum()))
    return float(best)


def test_a_planted_thin_link_is_the_thinnest_of_all_cuts() -> None:
    draw = np.random.default_rng(1)
    low, high = np.triu_indices(8, 1)
    number = draw.integers(20, 60, len(low)).astype(float)
    across = (low < 3) & (high >= 3)
    number[across] = 0
    number[np.flatnonzero(across)[:2]] = 2
    link = thinnest_link(8, low[number > 0], high[number > 0], number[number > 0])
    assert link is not None
    assert link.members.tolist() == [0, 1, 2]
    assert link.battles == 4
    assert link.share == pytest.approx(brute_force_link(8, low, high, number))


def test_small_graphs_have_no_parts_to_link() -> None:
    assert thinnest_link(3, np.array([0, 1]), np.array([1, 2]), np.array([1.0, 1.0])) is None


def test_a_board_is_freed_of_a_covariate_as_a_ranking_is() -> None:
    """Longer answers win more often; half-lives and covariates reach the fit."""
    frame = battles(1500)
    draw = np.random.default_rng(3)
    first = draw.random(len(frame)) < 0.5
    frame["model_a"] = np.where(first, frame.winner, frame.loser)
    frame["model_b"] = np.where(first, frame.loser, frame.winner)
    frame["winner"] = np.where(frame.tie, "tie", np.where(first, "model_a", "model_b"))
    frame["length"] = draw.normal(size=len(frame)) + 0.5 * np.where(first, 1.0, -1.0)
    frame = frame.drop(columns=["loser", "tie"])
    settings = {"covariates": "length", "half_life": "60d"}
    board = distagg.board(frame, **settings)
    ranked = distagg.solve("bradley_terry", frame, scale="elo", **settings)
    table = board.table.set_index("item")
    np.testing.assert_allclose(table.score, ranked.ranking.to_pandas().set_index("item").score[table.index])
    (row,) = board.about["coefficients"]
    assert row["covariate"] == "length"
    assert row["coefficient"] == pytest.approx(ranked.coefficients["coefficient"][0].as_py())
    assert 0.3 < row["low"] < row["coefficient"] < row["high"] < 1.5
    plain = distagg.board(frame, half_life="60d").table.set_index("item")
    assert not np.allclose(plain.score, table.score[plain.index], atol=1.0)
    np.testing.assert_allclose(table.uncertainty, plain.uncertainty[table.index], rtol=0.3)
