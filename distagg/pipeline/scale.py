"""The step ``scale``: measures passes and rounds with more workers, more data, other chunk sizes, and a simulation.

Strong scaling is the same data on more workers; weak scaling is data that grow with the workers (replicated experts).
The time of a pass is split into reading, computing and the rest (coordination, waiting for the last worker). The
universal scalability law is fitted to the measurements, with 95% intervals. A simulation runs rounds with the real
scheduler and driver and up to 1,000 in-process workers, whose chunks take the measured time. Clusters are always local,
whatever the job's place. Measurements are stored, so that a resumed run does not repeat them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.expand import expand_dataset
from distagg.engine.dask import DaskRunner, local_cluster
from distagg.engine.fitting.fit import check_fits
from distagg.engine.scaling import crowd, fitted_law, middle, passes, round_cost, rounds_at, simulated_refs
from distagg.errors import InfrastructureError, UsageError
from distagg.models import Model, model_named
from distagg.pipeline.folder import Kept
from distagg.sources.synthetic import SyntheticSource

PAIR = 2  # workers, when anything else varies
CHUNK = 1 << 18  # entries, when anything else varies
LAW_POINTS = 3  # least numbers of workers for a fit: the law has three parameters
ROUNDS = 20  # empty rounds for each repeat of a pass
Runs = list[dict[str, float]]


def scale(
    values: dict[str, Any], dataset: Dataset | None, folder: Path, say: Callable[..., None], *, seed: int = 0
) -> dict[str, Any]:
    """All measurements of a scale step; ``folder`` stores data and measurements until the end."""
    folder.mkdir(parents=True, exist_ok=True)
    model, kept = model_named(values["model"], seed=seed), Kept(folder, say)
    if dataset is None:
        dataset = _dataset_at(
            folder / "synthetic",
            lambda target: write_dataset(SyntheticSource(queries=values["queries"], shape="mq2008", seed=seed), target),
        )
    check_fits(model, dataset)
    if dataset.manifest.partition != "query":
        raise UsageError(f"{dataset.path} is partitioned by expert; scaling is measured on whole queries")
    result: dict[str, Any] = {
        "model": model.name,
        "queries": dataset.manifest.queries,
        "entries": dataset.manifest.entries,
        "strong": {},
        "weak": {},
        "experts": {},
        "items": {},
        "chunk": {},
        "simulated": {},
    }
    for workers in values["workers"]:
        _measure(result, workers, values, _Data(dataset, folder), model, kept)
    _simulate(result, values, dataset, kept)
    rates = {"strong, measured": _rates(result["strong"])} | {
        f"simulated, chunks of {size:,}": _rates(runs, values["simulated_entries"])
        for size, runs in result["simulated"].items()
    }
    result["laws"] = {name: _law(some, seed) for name, some in rates.items() if len(some) >= LAW_POINTS}
    result["simulated_entries"] = values["simulated_entries"]
    return json.loads(json.dumps(result))


@dataclass(frozen=True, slots=True)
class _Data:
    base: Dataset
    folder: Path

    def grown(self, experts: int = 1, items: int = 1) -> Dataset:
        if experts == items == 1:
            return self.base
        target = self.folder / f"experts-{experts}-items-{items}"
        return _dataset_at(target, lambda target: expand_dataset(self.base, target, experts=experts, items=items))


def _dataset_at(target: Path, make: Callable[[Path], Any]) -> Dataset:
    if not target.exists():
        make(target)
    return Dataset.open(target)


def _measure(
    result: dict[str, Any], workers: int, values: dict[str, Any], data: _Data, model: Model, kept: Kept
) -> None:
    """All passes on this many workers; the cluster starts only if a pass has to be measured."""
    base, repeats = values["grow"], values["repeats"]
    with ExitStack() as stack:
        held: list[DaskRunner] = []

        def runner() -> DaskRunner:
            if not held:
                held.append(stack.enter_context(_started(local_cluster(workers))))
            return held[0]

        def timed(axis: str, key: int, dataset: Callable[[], Dataset], chunk: int = CHUNK) -> None:
            name = f"{axis}-{key}"
            result[axis][key] = kept(name, lambda: passes(runner(), model, dataset().plan(chunk), repeats))

        timed("strong", workers, lambda: data.grown(base))
        timed("weak", workers, lambda: data.grown(base * workers))
        if workers == PAIR:
            for times in values["times"]:
                timed("experts", times, lambda times=times: data.grown(experts=times))  # type: ignore[misc]
                timed("items", times, lambda times=times: data.grown(items=times))  # type: ignore[misc]
            for size in values["chunks"]:
                timed("chunk", size, lambda: data.grown(base), size)
            cost = kept("round", lambda: round_cost(runner(), data.base.plan(1 << 14), ROUNDS * repeats))
            result["round"] = cost


def _simulate(result: dict[str, Any], values: dict[str, Any], dataset: Dataset, kept: Kept) -> None:
    """Simulate rounds for each chunk size and number of workers."""
    few = min(result["strong"])
    median = middle(result["strong"][few])
    result["entry_seconds"] = (
        median["compute"] * few / median["entries"]
    )  # without reading: in rounds, chunks are in memory
    sizes = values["simulated_chunks"]

    def rounds(workers: int) -> list[Runs]:
        with _started(crowd(workers)) as runner:
            refs = [simulated_refs(dataset, values["simulated_entries"], size) for size in sizes]
            return [rounds_at(runner, some, result["entry_seconds"], values["repeats"]) for some in refs]

    for workers in values["simulated"]:
        runs = kept(f"simulated-{workers}", lambda workers=workers: rounds(workers))  # type: ignore[misc]
        for size, mine in zip(sizes, runs, strict=True):
            result["simulated"].setdefault(size, {})[workers] = mine


@contextmanager
def _started(cluster: AbstractContextManager[DaskRunner]) -> Iterator[DaskRunner]:
    with ExitStack() as stack:
        try:
            runner = stack.enter_context(cluster)
        except (RuntimeError, TimeoutError) as error:
            raise InfrastructureError(f"the cluster did not start: {error}") from error
        yield runner


def _law(rates: dict[int, Sequence[float]], seed: int) -> dict[str, Any]:
    """The fitted law; an infinite peak becomes null, because JSON has no infinity."""
    result = fitted_law(rates, seed)
    ends = [None if math.isinf(end) else end for end in (result["peak"], *result["peak_interval"])]
    return result | {"peak": ends[0], "peak_interval": ends[1:]}


def _rates(runs: dict[int, Runs], work: float | None = None) -> dict[int, Sequence[float]]:
    return {n: [(work or run["entries"]) / run["seconds"] for run in some] for n, some in runs.items()}
