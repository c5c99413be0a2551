"""Scaling: the law is found again where it is planted, time is split without remainder, the simulation runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from distagg.dataset import Dataset
from distagg.engine import scaling
from distagg.engine.dask import DaskRunner
from distagg.engine.scaling import crowd, passes, round_cost, rounds_at, simulated_refs
from distagg.models import model_named


def test_a_planted_law_is_found_within_its_interval() -> None:
    draws, counts = np.random.default_rng(3), (1, 2, 4, 8, 16, 32, 64)
    planted = {"rate": 5e6, "serial": 0.03, "talk": 2e-4}
    measured = {n: scaling.throughput(np.float64(n), **planted) * draws.normal(1.0, 0.01, 8) for n in counts}
    found = scaling.fitted_law(measured)
    for name, value in planted.items():
        low, high = found["intervals"][name]
        assert low <= value <= high
        assert high - low < value
    assert found["peak"] == pytest.approx(np.sqrt(0.97 / 2e-4), rel=0.1)


def test_a_perfect_machine_has_no_peak_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "DRAWS", 5)  # all repeats are alike
    found = scaling.fitted_law({n: [1e6 * n] * 3 for n in (1, 2, 4, 8)})
    assert found["serial"] < 1e-4
    assert found["peak"] > 1_000


@pytest.mark.cluster
def test_the_time_of_a_pass_is_split_without_remainder(planted: Path, clusters: Callable[[int], DaskRunner]) -> None:
    refs, runner = Dataset.open(planted).plan(1 << 10), clusters(1)
    (run,) = passes(runner, model_named("rrf"), refs, 1)
    cost = round_cost(runner, refs, 3)
    assert run["read"] + run["compute"] + run["coordination"] == pytest.approx(run["seconds"])
    assert min(run["read"], run["compute"], run["coordination"]) > 0
    assert run["entries"] == Dataset.open(planted).manifest.entries
    assert [len(times) for times in cost.values()] == [3, 3]


@pytest.mark.cluster
def test_the_simulation_counts_what_the_busiest_worker_computes(planted: Path) -> None:
    refs = simulated_refs(Dataset.open(planted), 10_000, 1_000)
    assert len(refs) == 10
    with crowd(3) as runner:
        (run,) = rounds_at(runner, refs, 1e-5, 1)
    assert run["compute"] == pytest.approx(4 * 0.01)  # ten chunks of 10 ms, three workers
    assert run["seconds"] >= 0.04
