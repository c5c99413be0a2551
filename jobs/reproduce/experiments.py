"""What is measured on lists: each function gives figures that JSON can hold, from a dataset and settings alone.

An ``Experiment`` names one of these functions, or of ``ratings``; what several tables need is measured once. ``cost``
is what it takes in seconds, about: long ones start first.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from distagg.dataset import Dataset
from distagg.dataset.chunk import Chunk
from distagg.dataset.expand import expand_chunk
from distagg.engine.fitting.fit import fit
from distagg.engine.fitting.folds import Fold, make_folds
from distagg.engine.fitting.learner import Goal
from distagg.engine.inspect.attribution import explain
from distagg.engine.inspect.quality import as_rows, drop_experts, judge_experts, retrain, weight_rows
from distagg.engine.rank import solved
from distagg.engine.saved import Fitted
from distagg.errors import NotConvergedWarning
from distagg.metrics import highest_label, parse_metrics, score_chunk
from distagg.models import Model, Params, model_named
from distagg.types import OFFSET, RANK, Floats
from jobs.reproduce.letter import paper_model

LETOR = (*(f"ndcg@{k}" for k in range(1, 6)), *(f"p@{k}" for k in range(1, 6)), "map")
METRICS = (*LETOR, "ndcg@10", "err", "rbp")
PERSISTENCE, DIGITS = 0.95, 6
TIMES = tuple(range(1, 11))
SIZES, DRAWS = (5, 10, 15, 20), 20


@dataclass(frozen=True)
class Experiment:
    """One run of ``store.KINDS[kind]`` on a named dataset; ``alone`` where its figures are times."""

    name: str
    kind: str
    data: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    cost: float = 10.0
    alone: bool = False


@contextmanager
def stopping(settings: Mapping[str, Any]) -> Iterator[None]:
    """Without the warning that a fit has not converged, where the procedure is to stop after some gradient steps."""
    with warnings.catch_warnings():
        if settings.get("solver") == "gradient":
            warnings.simplefilter("ignore", NotConvergedWarning)
        yield


def model_row(
    dataset: Dataset,
    model: str,
    settings: Mapping[str, Any],
    backwards: bool = False,
    stop: str = "",
    blind: bool = False,
    alone: bool = False,
) -> dict[str, Any]:
    """A model on the five folds: every metric of every query, and the means over folds.

    ``backwards`` reads every list from its last item; ``stop`` is the validation metric of models that stop by one;
    ``blind`` judges on validation queries that chose nothing, and on no test query (``blind_folds``). ``alone`` is for
    models that do not stop early: they learn from the training queries alone, not from the validation queries too.
    """
    made, goal = paper_model(model, settings), Goal(stop) if stop else Goal()
    learned: list[Params] = []

    def scores(fold: Fold) -> Callable[[Chunk], Floats]:
        learned.append(fit(made, fold.train, valid=None if alone else fold.valid, goal=goal) if made.learns else {})
        return lambda chunk: solved(made, chunk, learned[-1]).score

    with stopping(settings):
        return five_folds(turned_round(dataset) if backwards else dataset, scores, learned, blind=blind)


def blind_folds(dataset: Dataset) -> list[Fold]:
    """LETOR's folds without their test parts: two training parts teach, the third chooses, the validation part judges.

    What is chosen by these figures has seen no test query, and no figure is of queries that chose the round.
    """
    folds = []
    for fold in make_folds(dataset, "letor5"):
        *teach, choose = sorted(fold.train.where.parts or ())
        folds.append(Fold(fold.name, dataset.select(parts=teach), dataset.select(parts=[choose]), fold.valid))
    return folds


def turned_round(dataset: Dataset) -> Dataset:
    """The dataset in memory with every list read from its last item; ranks are places."""
    return placed(dataset, backwards=True)


def placed(dataset: Dataset, *, backwards: bool) -> Dataset:
    """The dataset in memory with places for ranks, 1 for the first of a list, or ``backwards`` for the last."""

    def changed(chunk: Chunk) -> Chunk:
        length = np.diff(chunk.entry_offsets)
        entry = np.arange(chunk.n_entries)
        place = entry - np.repeat(chunk.entry_offsets[:-1], length)
        taken = np.repeat(chunk.entry_offsets[1:], length) - 1 - place if backwards else entry
        none = chunk.entry_score[:0]
        return replace(chunk, entry_item=chunk.entry_item[taken], entry_rank=(place + 1).astype(RANK), entry_score=none)

    return replace(dataset, path="", held=tuple(changed(ref.load()) for ref in dataset.plan(1)))


def five_folds(
    dataset: Dataset,
    scores: Callable[[Fold], Callable[[Chunk], Floats]],
    learned: Sequence[Params],
    *,
    blind: bool = False,
) -> dict[str, Any]:
    """Metrics of the test queries by what ``scores`` makes of each fold; ``learned`` is what the folds learned."""
    highest = highest_label(dataset.manifest)
    values, means = np.zeros((dataset.manifest.queries, len(METRICS))), []
    for fold in blind_folds(dataset) if blind else make_folds(dataset, "letor5"):
        score = scores(fold)
        found = [(c.positions, paper_metrics(c, score(c), highest)) for c in fold.test.chunks(ids=False)]
        for at, value in found:
            values[at] = value
        means.append(np.concatenate([value for _, value in found]).mean(axis=0))
    theta = next((params["expert_theta"] for params in learned if "expert_theta" in params), None)
    return {
        "means": dict(zip(METRICS, np.mean(means, axis=0).tolist(), strict=True)),
        "queries": dict(zip(METRICS, values.T.round(DIGITS).tolist(), strict=True)),
        "adherence": None if theta is None else theta.tolist(),
        "experts": list(dataset.experts),
    }


def paper_metrics(chunk: Chunk, scores: Floats, highest: int) -> Floats:
    """METRICS of every query; RBP as Niu et al. 2013 has it (equation 7): the label itself is the gain."""
    plain = score_chunk(chunk, scores, parse_metrics(METRICS[:-1]), max_grade=highest)
    graded = [
        score_chunk(
            replace(chunk, labels=(chunk.labels >= grade).astype(chunk.labels.dtype)),
            scores,
            parse_metrics([f"rbp({PERSISTENCE})"]),
        )
        for grade in range(1, highest + 1)
    ]
    return np.concatenate([plain, np.sum(graded, axis=0)], axis=1)


def unused_experts(dataset: Dataset, settings: Mapping[str, Any], papers: Sequence[str], seeds: int) -> dict[str, Any]:
    """A crf of all experts, again without those it does not use on its training queries, and without the paper's.

    No test query has a say in whom a fold leaves out.
    """
    metrics = (*LETOR[:5], "map")
    found: dict[str, list[list[Floats]]] = {}
    unused: dict[str, int] = {}
    for seed in range(seeds):
        made = model_named("crf", {**settings, "seed": seed})
        for name in ("all experts", "without the unused", "without the paper's"):
            found.setdefault(name, []).append([])
        for fold in make_folds(dataset, "letor5"):
            whole = Fitted(made, fit(made, fold.train, valid=fold.valid), fold.train.experts)
            idle = [one.expert for one in judge_experts(whole, fold.train) if one.verdict == "unused"]
            for expert in idle:
                unused[expert] = unused.get(expert, 0) + 1
            for name, without in zip(found, ([], idle, list(papers)), strict=True):
                fitted = retrain(whole, without, fold.train, valid=fold.valid) if without else whole
                tested = drop_experts(fold.test, without)
                chunks = [(c, solved(made, c, fitted.params).score) for c in tested.chunks()]
                found[name][-1].append(
                    np.concatenate([score_chunk(c, score, parse_metrics(metrics)) for c, score in chunks])
                )
    runs = {name: [[fold.mean(axis=0) for fold in run] for run in by_seed] for name, by_seed in found.items()}
    return {
        "metrics": metrics,
        "unused": unused,
        "models": 5 * seeds,
        "means": {name: [np.mean(run, axis=0).tolist() for run in by_seed] for name, by_seed in runs.items()},
        "queries": {
            name: dict(
                zip(
                    metrics,
                    np.mean([np.concatenate(run) for run in by_seed], axis=0).T.round(DIGITS).tolist(),
                    strict=True,
                )
            )
            for name, by_seed in found.items()
        },
    }


def expert_weights(dataset: Dataset, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The weights of a crf fitted on fold 1, and what it makes of every expert."""
    fold, made = make_folds(dataset, "letor5")[0], model_named("crf", dict(settings))
    fitted = Fitted(made, fit(made, fold.train, valid=fold.valid), fold.train.experts)
    return {"weights": weight_rows(fitted), "experts": as_rows(judge_experts(fitted, fold.train))}


def hard_queries(dataset: Dataset, items: int) -> dict[str, Any]:
    """Test queries of fold 1 that rrf begins with an irrelevant item and lambdarank with the best; one explained.

    The one has a single relevant item, about ``items`` in all, and its relevant item far down by rrf.
    """
    fold, made = make_folds(dataset, "letor5")[0], model_named("lambdarank")
    fitted = Fitted(made, fit(made, fold.train, valid=fold.valid), fold.train.experts)
    wanted, turned, queries, lost = parse_metrics(["ndcg@1", "mrr"]), {}, 0, 0
    for chunk in fold.test.chunks(ids=False):
        rrf, ours = model_named("rrf").score(chunk, {}), solved(made, chunk, fitted.params).score
        by_rrf, by_us = (score_chunk(chunk, score, wanted) for score in (rrf, ours))
        queries += chunk.n_queries
        lost += int(((by_rrf[:, 0] == 1.0) & (by_us[:, 0] == 0.0)).sum())
        relevant = np.bincount(chunk.item_query(), chunk.labels >= 1, chunk.n_queries)
        sizes = np.diff(chunk.item_offsets)
        for q in np.flatnonzero((by_rrf[:, 0] == 0.0) & (by_us[:, 0] == 1.0)):
            like = relevant[q] == 1 and abs(sizes[q] - items) <= items // 2
            turned[chunk.query_ids[int(q)].as_py()] = (bool(like), -float(by_rrf[q, 1]))
    shown = explain(fitted, fold.test, max(turned, key=lambda name: turned[name])) if turned else None
    return {"queries": queries, "turned": list(turned), "lost": lost, "shown": shown}


def robustness(
    dataset: Dataset,
    model: str,
    draws: int,
    seed: int,
    settings: Mapping[str, Any] | None = None,
    backwards: bool = False,
) -> dict[str, Any]:
    """NDCG@5 of a model that learns nothing with some of the experts; draws are the same for all models."""
    made, experts = model_named(model, dict(settings or {})), len(dataset.experts)
    chunks = list((turned_round(dataset) if backwards else dataset).chunks(ids=False))
    found: dict[str, list[float]] = {}
    for size in (size for size in SIZES if size <= experts):
        found[str(size)] = []
        for draw in range(draws):
            random = np.random.default_rng(np.random.SeedSequence([seed, size, draw]))
            chosen = random.choice(experts, size, replace=False)
            with stopping(settings or {}):
                found[str(size)].append(_mean_of_parts(made, [of_experts(chunk, chosen) for chunk in chunks]))
    return {"sizes": found}


def of_experts(chunk: Chunk, chosen: np.ndarray) -> Chunk:
    """The chunk with the lists of those experts only; items that are then in no list stay."""
    kept = np.isin(chunk.list_expert, chosen)
    length = np.diff(chunk.entry_offsets)
    entries = np.repeat(kept, length)
    before = np.concatenate([[0], np.cumsum(kept)])
    return replace(
        chunk,
        list_offsets=before[chunk.list_offsets].astype(OFFSET),
        list_expert=chunk.list_expert[kept],
        entry_offsets=np.concatenate([[0], np.cumsum(length[kept])]).astype(OFFSET),
        entry_item=chunk.entry_item[entries],
        entry_rank=chunk.entry_rank[entries],
        entry_score=chunk.entry_score[entries] if len(chunk.entry_score) else chunk.entry_score,
    )


def _mean_of_parts(model: Model, chunks: Sequence[Chunk]) -> float:
    wanted = parse_metrics(["ndcg@5"])
    found = np.concatenate([score_chunk(c, solved(model, c, {}).score, wanted)[:, 0] for c in chunks])
    parts = np.concatenate([c.parts.to_numpy(zero_copy_only=False) for c in chunks])
    return float(100.0 * np.mean([found[parts == part].mean() for part in np.unique(parts)]))


def ranking_time(dataset: Dataset, repeats: int) -> dict[str, Any]:
    """Microseconds of the processor to rank a query of fold 1, experts or items repeated; every repeat, in turns.

    Copies of an expert have its weights. Scores are from a chunk in memory, SVD features included.
    """
    fold = make_folds(dataset, "letor5")[0]
    models = {name: model_named(name) for name in ("crf", "lambdarank")}
    learned = {name: fit(model, fold.train, valid=fold.valid) for name, model in models.items()}
    (ref,) = fold.test.plan(1 << 40)
    chunk = ref.load(ids=False)
    taken: dict[str, dict[str, list[list[float]]]] = {
        axis: {name: [] for name in models} for axis in ("experts", "items")
    }
    for axis, by_model in taken.items():
        for t in TIMES:
            grown = expand_chunk(chunk, **{axis: t})
            runs: dict[str, list[float]] = {name: [] for name in models}
            for _ in range(repeats + 1):
                for name, model in models.items():
                    params = _repeated(learned[name], t if axis == "experts" else 1)
                    runs[name].append(1e6 * _seconds(model, grown, params) / chunk.n_queries)
            for name in models:
                by_model[name].append(runs[name][1:])  # the first of all compiles
    return {"queries": chunk.n_queries, "times": list(TIMES), "microseconds": taken}


def _seconds(model: Model, chunk: Chunk, params: Params) -> float:
    """Of the processor: others may be at work on it."""
    fresh = replace(chunk)  # what a model keeps of a chunk it has seen must not help
    began = time.process_time()
    model.score(fresh, params)
    return time.process_time() - began


def _repeated(params: Params, times: int) -> Params:
    """Weights of experts for all their copies."""
    return {
        name: np.tile(value, (times, *[1] * (value.ndim - 1))) if name.startswith("expert_") else value
        for name, value in params.items()
    }
