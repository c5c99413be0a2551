"""Options that several commands share, and the values that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from distagg.cli.commands import Argument, Gathered, flag, option, say
from distagg.errors import UsageError
from distagg.pipeline.step_options import OPTIONS, Field

if TYPE_CHECKING:
    from distagg.dataset import Dataset
    from distagg.engine.fitting.fit import Goal, Through
    from distagg.engine.runner import Runner


UNZIPPED = 6  # size of plain text relative to gzipped text
SMALL, LARGE = 200_000_000, 2_000_000_000  # bytes of files, about 50 million lines


def settings_of(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> dict[str, str]:
    """The settings ``key=value`` by key."""
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{param.opts[0]} {word}: found no '=', expected key=value")
        settings[key] = value
    return settings


def columns_of(ctx: click.Context, param: click.Parameter, text: str | None) -> dict[str, str]:
    """The columns ``theirs=ours,...`` by their name in the files."""
    columns = {}
    for word in text.split(",") if text else ():
        theirs, equals, ours = word.partition("=")
        if not (equals and theirs and ours):
            raise UsageError(f"--columns: found '{word}', expected THEIRS=OURS,... such as qid=query,docno=item")
        columns[theirs] = ours
    return columns


def names_of(text: str, option: str) -> list[str]:
    """The names ``a,b,...`` of an option; refuses an empty one."""
    names = text.split(",")
    if not all(name.strip() for name in names):
        raise UsageError(f"{option}: found {text!r}, expected names separated by commas, such as rrf,borda")
    return names


@dataclass(frozen=True)
class Data:
    """The data of a command: a dataset, or source files that are read into memory."""

    sources: tuple[str, ...]
    kind: str | None = None
    qrels: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    expand_experts: int = 1
    expand_items: int = 1
    covariates: str = ""

    def __str__(self) -> str:
        from distagg.storage.paths import place

        return " ".join(str(place(source)) if "://" in source else source for source in self.sources)

    def open(self) -> Dataset:
        """Open the dataset or read the files, with the expansion that the options ask for."""
        from distagg.dataset import expanded

        dataset = open_data(self.sources, self.kind, self.qrels, self.columns, self.covariates)
        times = {"experts": self.expand_experts, "items": self.expand_items}
        return expanded(dataset, **times) if times != {"experts": 1, "items": 1} else dataset

    def with_covariates(self, settings: Mapping[str, str]) -> Data:
        """The data with the covariates that the settings of a model name, which are read from files too."""
        return replace(self, covariates=settings.get("covariates", ""))

    def beside(self, path: str) -> Dataset:
        """Open other data with the same options; those for files do not apply to a dataset."""
        if is_dataset(path):
            return Data((path,), expand_experts=self.expand_experts, expand_items=self.expand_items).open()
        return replace(self, sources=(path,)).open()


def is_dataset(path: str) -> bool:
    """Whether a path is that of a dataset, complete or not. A URL with nothing behind it counts as one."""
    from distagg.dataset import manifest
    from distagg.storage.paths import HTTP, Store, place

    where = place(path)
    if not isinstance(where, Store):
        return manifest.is_dataset(where)
    if where.scheme in HTTP or "*" in where.key or "[" in where.key:
        return False
    return not where.exists() or manifest.is_dataset(where)


def open_data(
    sources: Sequence[str], kind: str | None, qrels: str | None, columns: Mapping[str, str], covariates: str = ""
) -> Dataset:
    """Open a dataset, or read files into memory; ``kind``, ``qrels``, ``columns``, ``covariates`` are for files."""
    from distagg.dataset import Dataset
    from distagg.engine.importing import read_dataset
    from distagg.engine.progress import metered

    datasets = [source for source in sources if is_dataset(source)]
    if datasets and len(sources) > 1:
        raise UsageError(f"{datasets[0]} is a dataset; give it alone, or give source files only")
    if datasets:
        given = [name for name, value in (("--kind", kind), ("--qrels", qrels), ("--columns", columns)) if value]
        if given:
            raise UsageError(
                f"{given[0]} is for source files, but {datasets[0]} is a dataset; import it with {given[0]}"
            )
        return Dataset.open(datasets[0])
    note_size(sources)
    with metered("read, rows", 0) as progress:
        return read_dataset(
            sources, kind=kind, qrels=qrels, columns=columns or None, covariates=covariates or None, progress=progress
        )


def refuse_unlabelled(data: Data, dataset: Dataset) -> None:
    """Refuse data without labels, and say how to give them."""
    if not dataset.manifest.labels:
        remedy = "import it with them" if is_dataset(data.sources[0]) else "give --qrels FILE"
        raise UsageError(f"{data} has no labels; {remedy}")


def note_size(sources: Sequence[str]) -> None:
    """Recommend 'distagg import' if the files are large in memory."""
    local = (Path(source) for source in sources if "://" not in source)
    files = [file for source in local for file in (source.iterdir() if source.is_dir() else (source,))]
    size = sum(file.stat().st_size * (UNZIPPED if file.suffix == ".gz" else 1) for file in files if file.is_file())
    if size < SMALL:
        return
    from distagg.engine.memory import usable_memory  # late: it loads much

    if size > LARGE or 2 * size > usable_memory():
        say(
            f"reading {size / 1e9:.1f} GB of files into memory; for data that is large or used again: "
            "distagg import FILE... -o DATASET"
        )


@dataclass(frozen=True)
class Completion:
    """How users' missing ratings are completed, if at all."""

    complete: str | None
    completion: dict[str, str]

    def fit(self, dataset: Dataset, seed: int | None, runner: Runner) -> Through | None:
        """Fit the completion that the options ask for, if any."""
        from distagg.engine.complete import fit_completion
        from distagg.models import completion_named

        if not self.complete:
            if self.completion:
                raise UsageError("-c needs --complete")
            return None
        return fit_completion(completion_named(self.complete, self.completion, seed=seed or 0), dataset, runner=runner)


def make_goal(goal: str, protocol: str | None) -> Goal:
    from distagg.engine.fitting.fit import Goal

    return Goal(goal, protocol)


def matching(dataset: Dataset, condition: str | None) -> Dataset:
    """Select the experts that match a condition, and print their number."""
    if condition is None:
        return dataset
    dataset = dataset.select(audience=condition)
    say(f"{dataset.audience_size:,} of {dataset.manifest.experts:,} experts: {condition}")
    return dataset


def within(dataset: Dataset, since: str | None, until: str | None) -> Dataset:
    """Select pairs by their time, with the options --since and --until."""
    return dataset if since is None and until is None else dataset.select(since=since, until=until)


def settings_option(form: str, help: str) -> click.Option:
    return option("-p", "settings", many=True, metavar=form, callback=settings_of, help=help)


def complete_model(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
    """Names of models for the shell, and names of files for models that are saved."""
    from distagg.models import MODELS

    named = [CompletionItem(name) for name in MODELS if name.startswith(start.lower())]
    return named or [CompletionItem(start, type="file")]


def interval_of(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[float, float] | None:
    """The two numbers of ``LOW,HIGH``."""
    if text is None:
        return None
    try:
        low, high = (float(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"{param.opts[0]}: found '{text}', expected two numbers such as 0.5,5") from None
    return low, high


TYPES: dict[str, dict[str, Any]] = {  # how click reads a kind of field
    "whole": {"type": int},
    "number": {"type": float},
    "settings": {"many": True, "callback": settings_of},
    "metrics": {"many": True},
    "columns": {"callback": columns_of},
    "interval": {"callback": interval_of},
}


def step_options(command: str, *names: str) -> tuple[click.Option, ...]:
    """Options of a command, from the table that steps of jobs are made of too."""
    return tuple(_option(name, OPTIONS[command][name]) for name in names)


def _option(name: str, field: Field) -> click.Option:
    if field.kind == "flag":
        return flag(*field.flags, name, help=field.help)
    attributes = {"help": field.help, "metavar": field.metavar, **TYPES.get(field.kind, {})}
    if field.choices:
        attributes["type"] = click.Choice(field.choices)
    elif isinstance(field.default, (str, int)):
        attributes["default"] = field.default
    elif field.kind == "models" and isinstance(field.default, list):
        attributes["default"] = ",".join(field.default)
    return option(*field.flags, name, **attributes)


def completion_options(command: str) -> Gathered:
    return Gathered("completion", Completion, step_options(command, "complete", "completion"))


def goal_options(command: str) -> Gathered:
    return Gathered("goal", make_goal, step_options(command, "goal", "protocol"))


KIND, QRELS, COLUMNS = step_options("import", "kind", "qrels", "columns")
SOURCES = (
    Argument(
        "sources",
        metavar="DATA...",
        nargs=-1,
        required=True,
        help="files (plain or .gz), directories of files, patterns such as 'runs/*.run', or a dataset written by "
        "'distagg import'",
    ),
    KIND,
    QRELS,
    COLUMNS,
)
PLAIN_DATA = Gathered("data", Data, SOURCES, "Data")
EXPANSION = (
    option("--expand-experts", type=int, default=1, metavar="T", help="replicate each expert T times (default 1)"),
    option("--expand-items", type=int, default=1, metavar="T", help="replicate each item T times (default 1)"),
)
DATA = Gathered("data", Data, (*SOURCES, *EXPANSION), "Data")
DATASET = Argument("dataset", metavar="DATASET", help="a dataset written by 'distagg import'")
MODEL_OR_FITTED = Argument(
    "model",
    metavar="MODEL|MODELDIR",
    shell_complete=complete_model,
    help="a model's name, or a model fitted by 'distagg fit'",
)
GOAL = goal_options("fit")
RESULT = option(
    "-o",
    "--output",
    metavar="FILE.json",
    help="write the output of --json to a new file, with the values of every query",
)
REPORT = option("--report", metavar="FILE.html", help="write a self-contained page")
SAFE_CSV, ALLOW_UNSEEN = step_options("rank", "safe_csv", "allow_unseen")
SHORTCUTS = step_options("rank", "depth", "weights")
