"""Fixtures that several folders of tests use."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from distagg.dataset import Dataset
    from distagg.engine.dask import DaskRunner

# The first example compiles kernels, so no deadline; derandomised: the same examples on every machine.
settings.register_profile("distagg", deadline=None, derandomize=True)
settings.load_profile("distagg")


# A shell's background jobs ignore SIGINT, and so would all that tests start; yet some tests are of interruptions.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


DATA = Path(os.environ.get("DISTAGG_DATA", Path(__file__).parents[1] / ".." / "shared" / "data")).resolve()


LONGEST = (
    "test_namespaces.py", "test_reproduce_real.py", "test_faults.py", "test_runners.py", "test_ssh.py",
    "test_stores.py", "test_jit_cache.py", "test_contract.py", "test_real.py", "test_commands.py", "test_scale.py",
)  # fmt: skip


def pytest_xdist_auto_num_workers() -> int | None:
    """``-n auto`` is one process more than there are cores: tests of clusters and faults mostly wait."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # xdist reads it
    return 1 + (os.cpu_count() or 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest go first, so that no process is left alone with one of them at the end."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The real data sets, which are not ours to ship; tests that need them skip without them."""
    if not DATA.is_dir():
        pytest.skip("no real data: set DISTAGG_DATA to its folder")
    return DATA


@pytest.fixture(scope="session")
def load_job() -> Callable[[str], ModuleType]:
    """A script of ``jobs`` as a module, by its path there."""

    def load(path: str) -> ModuleType:
        script = Path(__file__).parents[1] / "jobs" / path
        spec = importlib.util.spec_from_file_location(script.stem, script)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[script.stem] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="module")
def clusters() -> Iterator[Callable[[int], DaskRunner]]:
    """Local clusters by their number of workers: each starts when it is first asked for, and serves the whole file."""
    import dask
    import distributed  # noqa: F401 (its defaults have to be there before some are set for a while)

    from distagg.engine.dask import local_cluster

    idle = {  # by Dask's defaults an idle cluster of two workers takes an eighth of a core
        "distributed.admin.tick.interval": "1s",
        "distributed.admin.system-monitor.interval": "5s",
        "distributed.worker.profile.enabled": False,
    }
    with dask.config.set(idle), ExitStack() as stack:
        yield cache(lambda workers: stack.enter_context(local_cluster(workers)))


@pytest.fixture(scope="session", params=["mq2007-agg", "mq2008-agg"])
def imported(
    request: pytest.FixtureRequest, data_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """Both LETOR sets, imported once: name and dataset."""
    from distagg.engine import import_dataset

    target = tmp_path_factory.mktemp("real") / request.param
    import_dataset("letor", [data_dir / request.param / f"A{part}.txt" for part in range(1, 6)], target)
    return request.param, target


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say whether the real data took part."""
    if DATA.is_dir():
        terminalreporter.write_line(f"real data: found at {DATA}, its tests ran as well")
    else:
        terminalreporter.write_line("real data: absent, its tests were skipped; set DISTAGG_DATA to its folder")


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dataset with a planted truth, in several blocks."""
    from distagg.dataset import write_dataset
    from distagg.sources.synthetic import SyntheticSource

    target = tmp_path_factory.mktemp("planted") / "data"
    write_dataset(SyntheticSource(queries=120, shape="mq2008", seed=3), target)
    return target


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Many adversarial experts: the consensus is poor."""
    from distagg.dataset import Dataset, write_dataset
    from distagg.sources.synthetic import SyntheticSource

    target = tmp_path_factory.mktemp("hostile") / "data"
    write_dataset(SyntheticSource(queries=150, shape="mq2008", adversarial=0.4, random=0.2, seed=8), target)
    return Dataset.open(target)


@pytest.fixture(scope="session")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One query, many users: an expert-partitioned dataset."""
    from distagg.dataset import write_dataset
    from distagg.sources.synthetic import SyntheticSource

    target = tmp_path_factory.mktemp("crowd") / "data"
    write_dataset(SyntheticSource(queries=1, items=60, experts=400, shape="movielens", seed=3), target)
    return target
