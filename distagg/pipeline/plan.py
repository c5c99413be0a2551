"""Estimate a job before it runs: chunks, memory and time of every step.

Chunks and entries are counted if the data exist already. With a ``Trial``, time and memory are measured on the first
chunk and extrapolated by entries; an import is rehearsed with the first lines of its files, and its entries are an
estimate (``distagg.engine.import_plan``). The time of a step that reads the output of an import is unknown until the
import has run.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distagg.dataset.chunk_ref import ChunkRef
from distagg.dataset.dataset import CHUNK_ENTRIES, Dataset
from distagg.dataset.manifest import Manifest
from distagg.engine.fitting.fit import cut
from distagg.engine.fitting.learner import learner_of
from distagg.engine.fitting.search import variants
from distagg.engine.fitting.train import TRAIN_ENTRIES, training_entries
from distagg.engine.import_parallel import PIECE_BYTES
from distagg.engine.import_plan import TASK_SECONDS, Rehearsal, plan_import, rehearse, simulated_task_seconds
from distagg.engine.importing import import_options, source_files, source_of
from distagg.engine.rank import ranking_of, ranking_schema, solved
from distagg.engine.saved import load_model
from distagg.engine.worker_memory import COPIES, parse_memory, refuse_large_chunks
from distagg.errors import UsageError
from distagg.models import Model, Params, is_model, model_named
from distagg.pipeline.spec import Job, Step
from distagg.sources.published import is_reference
from distagg.storage.paths import is_found, place, size_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What to try, and for how much data to plan imports: see ``plan_import``."""

    rows: float | None = None
    bandwidth: float | None = None
    simulate: bool = False

    def planned(self, known: Rehearsal, workers: int, **about: Any) -> dict[str, Any]:
        """The plan of an import that was rehearsed."""
        each = simulated_task_seconds(workers) if self.simulate else TASK_SECONDS
        return plan_import(
            known, rows=self.rows, bandwidth=self.bandwidth, workers=workers, seconds_of_task=each, **about
        )


def plan(job: Job, trial: Trial | None = None) -> list[dict[str, Any]]:
    """A row per step: step, do, entries, chunks, and with a trial seconds and memory (bytes per process)."""
    sizes: dict[str, float] = {}  # entries of the outputs of steps, if known
    rows = []
    for step in job.steps:
        row = _row(step, sizes, job)
        if step.do == "expand" and row["entries"] is not None:
            row["entries"] *= step.values["experts"] * step.values["items"]
            sizes[step.name] = row["entries"]
        if trial is not None and step.do == "import":
            row |= _rehearsed(step, trial, max(1, job.place.get("workers", 0)))
            sizes[step.name] = row["entries"]
        if trial is not None and step.do in ("rank", "fit") and row["entries"] is not None:
            row |= _measured(step, row["entries"], max(1, job.place.get("workers", 0)), job)
        rows.append(row)
    return rows


def _row(step: Step, sizes: dict[str, float], job: Job) -> dict[str, Any]:
    row: dict[str, Any] = {"step": step.name, "do": step.do, "entries": None, "chunks": None}
    if step.do == "import":
        row["bytes"] = sum(map(size_of, source_files(step.values["files"], step.values.get("columns"))))
        return row
    if "dataset" not in step.values:  # synthetic data
        return row
    reference = step.values["dataset"]
    manifest, memory = _manifest(reference), job.place.get("memory")
    usual = CHUNK_ENTRIES
    if step.do == "fit":
        model, _ = _model(step, job)
        usual = TRAIN_ENTRIES if manifest is None or model is None else training_entries(model, manifest)
    chunk = step.values.get("chunk_entries", usual)
    if manifest is not None:
        refs = Dataset.open(reference).plan(chunk)
        if memory is not None:
            _refuse_large(step, refs, memory)
        row["entries"], row["chunks"] = manifest.entries, len(refs)
    elif reference in sizes:
        row["entries"], row["chunks"] = sizes[reference], math.ceil(sizes[reference] / chunk)
    return row


def _refuse_large(step: Step, refs: Sequence[ChunkRef], memory: str) -> None:
    try:
        refuse_large_chunks(refs, parse_memory(memory))
    except UsageError as error:
        raise UsageError(f"steps.{step.name}: {error}") from error


def _manifest(reference: str) -> Manifest | None:
    return Dataset.open(reference).manifest if is_found(reference) else None


def _rehearsed(step: Step, trial: Trial, workers: int) -> dict[str, Any]:
    """The plan of an import, from the first lines of its files."""
    kind, files = step.values["source"], step.values["files"]
    if any(is_reference(place(file)) for file in files):
        return {}
    options = import_options(step.values)
    known = rehearse(kind, files, options)
    own = source_files(files, options.get("columns"))
    pieces = len(source_of(kind, own, dict(options)).source.split(PIECE_BYTES))
    planned = trial.planned(known, workers, text=sum(map(size_of, own)), pieces=pieces)
    return {
        "entries": planned["rows"],
        "seconds": planned["seconds"],
        "memory": planned["memory_of_a_worker"],
        "import": planned,
    }


def _measured(step: Step, entries: float, workers: int, job: Job) -> dict[str, Any]:
    """Measure seconds and memory on one chunk, twice: the first time compiles."""
    source = _source(step, job)
    model, params = _model(step, job)
    if source is None or model is None or source.manifest.partition == "expert":
        return {}
    learner = learner_of(model)
    rounds = learner.rounds(model) if step.do == "fit" else 0
    if model.learns and not params and not rounds:
        return {}
    usual = training_entries(model, source.manifest)
    ref = cut(model, source).plan(usual)[0]
    spent, compiling = 0.0, 0.0
    for turn in range(2):
        began = time.perf_counter()
        chunk = ref.load(ids=not rounds)
        if rounds:
            learner.rehearse(model, chunk)
        else:
            ranking_of(chunk, solved(model, chunk, params), ranking_schema(model))
        spent = time.perf_counter() - began
        compiling = spent if turn == 0 else max(compiling - spent, 0.0)
    share = 1 if rounds and model.serial else workers
    largest = min(entries, step.values.get("chunk_entries", usual))
    each = chunk.nbytes / max(chunk.n_entries, 1)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "seconds": compiling + max(rounds, 1) * spent * entries / max(chunk.n_entries, 1) / share,
        "memory": resident + COPIES * each * largest,
        **({"rounds at most": rounds} if rounds else {}),
    }


def _source(step: Step, job: Job) -> Dataset | None:
    """The dataset to measure on: the step's input, or the dataset that it is expanded from."""
    reference = step.values["dataset"]
    maker = job.step(reference)
    while maker is not None and maker.do == "expand":
        reference = maker.values["dataset"]
        maker = job.step(reference)
    return Dataset.open(reference) if maker is None else None


def _model(step: Step, job: Job) -> tuple[Model | None, Params]:
    name, settings = step.values["model"], step.values["settings"]
    if step.do == "fit":
        return variants(name, settings, tries=step.values.get("tries"), seed=job.seed)[0], {}
    if job.step(name) is not None:
        return None, {}
    if is_model(name):
        model, dataset = model_named(name, settings, seed=job.seed), _source(step, job)
        return model, model.resolved(dataset.experts) if dataset is not None else {}
    fitted = load_model(name)
    dataset = _source(step, job)
    return (fitted.model, fitted.params_for(dataset.experts)) if dataset is not None else (None, {})
