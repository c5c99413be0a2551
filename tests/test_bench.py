"""The benchmarks run: what they call in the package is there, with the arguments they give it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

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
