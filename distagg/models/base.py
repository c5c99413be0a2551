"""What a model is: frozen hyperparameters and pure functions on a chunk.

``score(chunk, params) -> scores`` scores whole queries. If the statistics of a split query add up over its chunks, the
model also has ``map(chunk, params) -> statistics``, ``reduce(a, b)`` and ``score_split(chunk, gathered) -> scores``. A
model does not know where it runs; the engine owns the loop.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.errors import NotConvergedWarning, UsageError, unknown
from distagg.models.lists import sum_by_item
from distagg.models.outcome import Outcome
from distagg.models.rounds import Gathered, LearningPass, Pass, Stage
from distagg.models.rounds import Params as Params
from distagg.models.rounds import Statistics as Statistics
from distagg.optimise.convergence import FIT_COLUMNS
from distagg.types import Floats

LARGEST = float(np.finfo(np.float64).max)
T = TypeVar("T")
M = TypeVar("M", bound="Model")


# Where a task's notes go. A context variable, because warnings.catch_warnings is not safe between threads.
_notes: ContextVar[list[str] | None] = ContextVar("notes", default=None)


def not_converged(message: str) -> None:
    """Report that a model did not converge: as a warning, or as a note if the engine collects notes."""
    notes = _notes.get()
    if notes is None:
        warnings.warn(message, NotConvergedWarning, stacklevel=3)
    elif message not in notes:
        notes.append(message)


@contextmanager
def collected_notes() -> Iterator[list[str]]:
    """Collect the notes of models that do not converge in this block."""
    notes: list[str] = []
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


def param(
    default: T,
    help: str,
    *,
    choices: Sequence[str] = (),
    above: float | None = None,
    least: float | None = None,
    text: bool = False,
) -> T:
    """A hyperparameter of a model: its default, its meaning, and the values it may have.

    A parameter has the type of its default. A number may also be one of the words in ``choices``, and a word may be
    a number if ``above`` or ``least`` bounds it; the annotation then says so: ``float | Literal["auto"]``. The model
    itself checks the form of a ``text``, and the commas in it do not separate values to try.
    """
    metadata = {"help": help, "choices": tuple(choices), "above": above, "least": least, "text": text}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Model:
    """Base of all models. Subclasses add hyperparameters with ``param`` and override what they need."""

    name: ClassVar[str]
    summary: ClassVar[str]
    paper: ClassVar[str]
    cost: ClassVar[str] = "entries"
    supervised: ClassVar[bool] = False
    inputs: ClassVar[tuple[str, ...]] = ("lists",)  # kinds of data that the default settings take
    pairs_setting: ClassVar[str] = ""  # the setting with which the model takes raw pairs as well
    positive: ClassVar[bool] = False  # needs ranks above 0, which ratings (ranks of minus the rating) do not have
    additive: ClassVar[bool] = False  # statistics of an expert-partitioned query add up over chunks
    adherence: ClassVar[bool] = False  # learns expert_theta, each expert's adherence in [0, 1]
    learns_from_parts: ClassVar[bool] = False  # it can learn from an expert-partitioned query as well
    unseen: ClassVar[float] = 0.0  # the value of params named expert_* for experts that are unseen in fitting
    neutral: ClassVar[float] = 0.0  # the reliability of an expert that tells nothing, for models that learn it
    package: ClassVar[str] = ""  # an optional dependency that training needs
    criterion: ClassVar[str] = ""  # when a fit counts as converged, in words; empty where nothing is iterated
    square_bytes: ClassVar[int] = 0  # bytes of memory for every two items of a query, in matrices of items by items
    observed_pairs_only: ClassVar[bool] = False  # it needs them only for items that somebody has compared
    pooling: ClassVar[str] = ""  # what a model with the setting ``pool`` does with large queries, in words
    learner: ClassVar[str] = "map_reduce"  # the name of the engine's learner that fits it
    overflows: ClassVar[bool] = False  # training can diverge: infinite scores then mean that a candidate is unusable

    depth: int = param(
        0,
        "take only this many entries of each list, the first ones, and those that tie with the last of them; 0 takes "
        "whole lists. Items that are then in no list stay in their query as unlisted items",
        least=0,
    )

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.__repr__ = Model.__repr__  # type: ignore[method-assign]  # a dataclass keeps the one that its class has

    def __repr__(self) -> str:
        """The settings that differ from the defaults."""
        settings = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        shown = [f"{f.name}={settings[f.name]!r}" for f in dataclasses.fields(self) if settings[f.name] != f.default]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check(self.name, field, getattr(self, field.name))

    @property
    def takes(self) -> tuple[str, ...]:
        """The kinds of data that the model takes with its settings: lists, pairs."""
        return self.inputs

    @property
    def needs_labels(self) -> bool:
        """Whether fitting needs labels."""
        return self.supervised

    @property
    def learns(self) -> bool:
        """Whether the model must be fitted before it can score."""
        return self.needs_labels

    @property
    def serial(self) -> bool:
        """Whether a fit is one sequence of steps in one process; several such fits run in parallel."""
        return getattr(self, "mode", "") == "serial"

    @property
    def weight_names(self) -> tuple[str, ...]:
        """Names of the params that are trained weights."""
        return ()

    @property
    def weight_columns(self) -> tuple[str, ...]:
        """Names of the columns of an expert's trained weights."""
        return ()

    @property
    def ignored(self) -> float:
        """The value of params named ``expert_*`` that makes the model ignore an expert."""
        return self.unseen

    def resolved(self, experts: tuple[str, ...]) -> Params:
        """Parameters that the settings state by expert name, such as weights; an unknown name is refused."""
        return {}

    def candidates(self, n_experts: int) -> list[Params]:
        """Parameters to choose from by a metric on labelled data; empty when nothing is to be chosen."""
        return []

    def chosen(self, candidates: list[Params], values: Floats) -> Params:
        """The parameters to keep, given each candidate's metric: the first of the best."""
        return candidates[int(np.argmax(values))]

    def learning(self, n_experts: int, params: Params) -> Stage:
        """The first round of learning. By default it is the only one: ``map``, ``reduce`` and ``learned``.

        ``params`` are those that come from the settings.
        """
        return LearningPass(self, params)

    def learning_split(self, n_experts: int, params: Params) -> Stage:
        """The same over the chunks of a split query, for models that can learn from its parts."""
        return self.learning(n_experts, params)

    def learned(self, statistics: Statistics) -> Params:
        """Compute the params from the sums over all chunks; by default they are the sums themselves."""
        return statistics

    def gathering(self, params: Params) -> Stage:
        """The first round over the chunks of a split query. By default it is the only one: ``map`` and ``reduce``."""
        return Pass(self, params)

    def map(self, chunk: Chunk, params: Params) -> Statistics:
        """Statistics of a chunk, for a split query or for learning; ``reduce`` merges those of two chunks."""
        raise NotImplementedError

    def reduce(self, a: Statistics, b: Statistics) -> Statistics:
        return {key: a[key] + b[key] for key in a}

    def score(self, chunk: Chunk, params: Params) -> Floats:
        raise NotImplementedError

    def score_split(self, chunk: Chunk, gathered: Gathered) -> Floats:
        """Scores of the items of a split query; every chunk of the query has all its items."""
        raise NotImplementedError

    def reliabilities(self, params: Params) -> dict[str, np.ndarray]:
        """What was learned about the worth of each expert, in the columns of ``models.reliability``; {} if nothing."""
        return {}

    @property
    def item_columns(self) -> tuple[str, ...]:
        """Columns that ``solve`` gives for items beside the score: some of ITEM_COLUMNS, the same for every chunk."""
        return ()

    @property
    def query_columns(self) -> tuple[str, ...]:
        """Columns that ``solve`` gives for queries: FIT_COLUMNS for models that iterate, and the model's own."""
        return ()

    def solve(self, chunk: Chunk, params: Params, *, trace: bool = False) -> Outcome:
        """Scores, and everything else that the model knows about items and queries."""
        return Outcome(self.score(chunk, params))

    def solve_split(self, chunk: Chunk, gathered: Gathered, *, trace: bool = False) -> Outcome:
        """Like ``solve``, for a split query whose statistics were gathered over its chunks."""
        return Outcome(self.score_split(chunk, gathered))


@dataclass(frozen=True, kw_only=True)
class Solver(Model):
    """A model that fits every query by iteration and reports how each fit ended.

    Subclasses write ``fit_chunk`` and, if statistics of a split query add up, ``fit_split``.
    """

    remedy: ClassVar[str] = "raise steps"  # advice for a fit that did not converge

    @property
    def query_columns(self) -> tuple[str, ...]:
        return FIT_COLUMNS

    def fit_chunk(self, chunk: Chunk, params: Params, *, trace: bool) -> Outcome:
        raise NotImplementedError

    def fit_split(self, chunk: Chunk, gathered: Gathered, *, trace: bool) -> Outcome:
        raise NotImplementedError

    def score(self, chunk: Chunk, params: Params) -> Floats:
        return self.solve(chunk, params).score

    def score_split(self, chunk: Chunk, gathered: Gathered) -> Floats:
        return self.solve_split(chunk, gathered).score

    def solve(self, chunk: Chunk, params: Params, *, trace: bool = False) -> Outcome:
        """The fit of every query. Queries that did not converge are always reported."""
        return self._reported(self.fit_chunk(chunk, params, trace=trace))

    def solve_split(self, chunk: Chunk, gathered: Gathered, *, trace: bool = False) -> Outcome:
        return self._reported(self.fit_split(chunk, gathered, trace=trace))

    def _reported(self, outcome: Outcome) -> Outcome:
        unfinished = ~outcome.queries["converged"]
        if unfinished.any():
            most = int(outcome.queries["iterations"][unfinished].max())
            worst = float(outcome.queries["gradient"][unfinished].max())
            not_converged(
                f"{self.name}: {int(unfinished.sum())} queries not converged after {most} steps "
                f"({self.criterion}; worst {worst:.1e}); {self.remedy}"
            )
        return outcome


@dataclass(frozen=True, kw_only=True)
class Tally(Model):
    """A per-query model: ``map`` tallies statistics for each item, ``settle`` turns them into scores.

    On whole queries ``score`` tallies and settles at once. The tallies of a split query are gathered first.
    A statistic named ``sum`` is the score, unless ``settle`` says otherwise.
    """

    additive: ClassVar[bool] = True

    def learning(self, n_experts: int, params: Params) -> Stage:
        """Subclasses that learn write it: ``map`` tallies items, and params are no tallies."""
        raise NotImplementedError(f"{type(self).__name__} is a Tally that learns, and has to write 'learning'")

    def settle(self, chunk: Chunk, tally: Statistics, params: Params) -> Floats:
        return tally["sum"]

    def score(self, chunk: Chunk, params: Params) -> Floats:
        return self.settle(chunk, self.map(chunk, params), params)

    def score_split(self, chunk: Chunk, gathered: Gathered) -> Floats:
        return self.settle(chunk, gathered.statistics, gathered.params)


Known = Params | Gathered  # what is known of a chunk's queries before they are scored


def score_known(model: Model, chunk: Chunk, known: Known) -> Floats:
    """Scores of a chunk's items: of whole queries, or of the split one whose statistics were gathered."""
    return model.score_split(chunk, known) if isinstance(known, Gathered) else model.score(chunk, known)


def sum_entries(chunk: Chunk, weights: Floats) -> Floats:
    """Sum of entry weights for each item of the chunk, shape (I,)."""
    return sum_by_item(chunk.entry_row(), weights, chunk.n_items)


def reciprocals(chunk: Chunk, c: float) -> Floats:
    """1 / (c + rank) of each entry of the chunk, shape (E,)."""
    with np.errstate(divide="ignore"):
        return 1.0 / (c + chunk.entry_rank)


def make(model: type[M], settings: dict[str, Any]) -> M:
    """A model with these settings, by parameter name; strings (from a command line) are read as the parameter's type.

    The case of names does not matter. Unknown names are refused with the nearest known one.
    """
    fields = {field.name: field for field in dataclasses.fields(model)}
    values: dict[str, Any] = {}
    for given, value in settings.items():
        key = given if given in fields else given.lower()
        if key not in fields:
            raise unknown(f"parameter of {model.name}", given, sorted(fields))
        if key in values:
            raise UsageError(f"parameter {key} of {model.name} is given twice; give it once")
        values[key] = _read(model.name, fields[key], value)
    return model(**values)


def _read(model: str, field: dataclasses.Field[Any], value: Any) -> Any:
    """A value as the type of the parameter's default."""
    if not isinstance(value, str) or field.metadata["text"]:
        return value
    if value in field.metadata["choices"]:
        return value
    try:
        if isinstance(field.default, bool):
            return {"true": True, "false": False, "1": True, "0": False}[value.lower()]
        if isinstance(field.default, int | float):
            return type(field.default)(value)
        if _takes_numbers(field):
            return float(value)
    except (KeyError, ValueError):
        kind = {bool: "true or false", int: "a whole number"}.get(type(field.default), "a number")
        others = "".join(f" or {choice}" for choice in field.metadata["choices"])
        raise UsageError(f"parameter {field.name} of {model}: found '{value}', expected {kind}{others}") from None
    return value


def _takes_numbers(field: dataclasses.Field[Any]) -> bool:
    return field.metadata["above"] is not None or field.metadata["least"] is not None


def _check(model: str, field: dataclasses.Field[Any], value: Any) -> None:
    meta = field.metadata
    if "help" not in meta:
        raise TypeError(f"field {field.name} of {model}: found no help, expected a field that 'param' makes")
    if meta["text"] or value in meta["choices"]:
        return
    where = f"parameter {field.name} of {model}: found {value!r}, expected"
    if isinstance(field.default, str) and not _takes_numbers(field):
        raise UsageError(f"{where} one of {', '.join(meta['choices'])}")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(field.default, bool):
        if not isinstance(value, bool):
            raise UsageError(f"{where} true or false")
        return
    if not number or not abs(value) <= LARGEST:  # nan is neither
        raise UsageError(f"{where} a finite number" + "".join(f" or '{c}'" for c in meta["choices"]))
    if isinstance(field.default, int) and value != int(value):
        raise UsageError(f"{where} a whole number" + "".join(f" or '{c}'" for c in meta["choices"]))
    if meta["above"] is not None and value <= meta["above"]:
        raise UsageError(f"{where} a number above {meta['above']}")
    if meta["least"] is not None and value < meta["least"]:
        raise UsageError(f"{where} a number of at least {meta['least']}")
