"""The benchmarks run: what they call in the package is there, with the arguments they give it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

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
