"""The benchmarks run: what they call in the package is there, with the arguments they give it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from distagg.models import MODELS
from distagg.sources.synthetic import SyntheticSource


def test_our_side_of_the_contest_computes_every_case(load_job: Callable[[str], ModuleType], tmp_path: Path) -> None:
    lists, ours = load_job("bench/lists.py"), load_job("bench/peers/ours.py")
    lists.make_dataset(tmp_path / "small", SyntheticSource(queries=3, items=6, shape="mq2008", seed=1))
    lists.export(tmp_path / "small")
    contestant = ours.Contestant(tmp_path / "small")
    contestant.load()
    items = sum(chunk.n_items for chunk in contestant.chunks)
    for case in ours.CASES:
        assert len(contestant.rows(contestant.compute(case))["score"]) == items, case
        assert sum(len(table) for table in contestant.compute(case + ours.IDS)) == items, case
    for case in contestant.cases:
        assert len(contestant.read(case)) > 0, case


def test_our_side_of_whole_jobs_answers_well(
    load_job: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, ours = load_job("bench/whole/tasks.py"), load_job("bench/whole/ours.py")
    for number, task in enumerate(tasks.TASKS):
        folder = tmp_path / str(number)
        folder.mkdir()
        task.make(folder, task.quick)
        monkeypatch.setattr(sys, "argv", ["ours.py", task.name, str(folder), str(folder / "answer.parquet")])
        ours.main()
        assert task.judge(folder, folder / "answer.parquet")[task.good] >= task.least, task.name


def test_our_side_of_tuning_searches_the_grid(load_job: Callable[[str], ModuleType]) -> None:
    bench = load_job("bench/tune.py")
    assert len(bench.grid(3)) == 66
    weights, value = bench.ours(bench.dataset_of(*bench.made(12)))
    assert sum(weights) == pytest.approx(1.0)
    assert 0.5 < value < 1.0


def test_intervals_of_boards_hold_the_truth(load_job: Callable[[str], ModuleType]) -> None:
    """A small version of the table in the guide, which has a row for each setting."""
    bench = load_job("bench/board_coverage.py")
    rows = [
        {"setting": bench.SETTINGS[at].name, "errors": errors, **bench.simulate(bench.SETTINGS[at], errors, boards, 60)}
        for at, errors, boards in ((1, "standard", 25), (2, "standard", 10), (1, "bootstrap", 5))
    ]
    for row in rows:
        assert 0.87 < row["scores"] < 0.995, row
        assert 0.87 < row["gaps"] < 0.995, row
        assert row["boards by ranks"] >= 0.95, row
    guide = (Path(__file__).parents[1] / "jobs" / "guides" / "pairs.md").read_text(encoding="utf-8")
    assert bench.markdown([]).splitlines()[0] in guide
    for setting in bench.SETTINGS:
        for errors in setting.errors:
            assert f"| {setting.name} | {errors} |" in guide


def test_a_planted_interval_that_is_too_short_is_noticed(load_job: Callable[[str], ModuleType]) -> None:
    bench = load_job("bench/board_coverage.py")
    row = {
        "setting": bench.SETTINGS[0].name,
        "errors": "standard",
        "scores": 0.91,
        "gaps": 0.95,
        "boards by ranks": 0.9,
    }
    assert bench.missed([row]) == ["missed: 20 items, no ties, standard: scores, boards by ranks"]


def test_a_load_that_grows_is_seen(load_job: Callable[[str], ModuleType]) -> None:
    load = load_job("bench/load.py")
    steady = [{"driver MB": 200.0 + n % 3, "driver sockets": 4.0, "left in outputs": 0.0} for n in range(40)]
    assert not any(row["grew"] for row in load.growth(steady))
    for name, each in (("driver MB", 2.0), ("driver sockets", 0.5), ("left in outputs", 1.0)):
        leaking = [{**row, name: row[name] + each * n} for n, row in enumerate(steady)]
        assert [row["what"] for row in load.growth(leaking) if row["grew"]] == [name]


def test_the_table_of_who_has_what_names_every_model(load_job: Callable[[str], ModuleType]) -> None:
    methods = load_job("bench/whole/capabilities.py").METHODS
    words = {word for cells in methods.values() for word in re.findall(r"\w+", cells.get("distagg", ""))}
    assert set(MODELS) - words == set()
    missing = [name for name, cells in methods.items() if "distagg" not in cells]
    assert missing == list(methods)[: len(missing)]  # what others have and we have not stands first
