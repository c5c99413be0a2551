"""Examples that are installed with distagg: made-up inputs with the guides that use them, and job files."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from distagg.errors import UsageError, unknown
from distagg.examples import inputs
from distagg.storage.atomic import refuse_existing

_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")


@dataclass(frozen=True)
class Example:
    """Made-up inputs for a guide: what they are, who writes them, and a first command to try."""

    about: str
    makers: tuple[Callable[[Path], None], ...]
    first: str


@dataclass(frozen=True)
class JobKind:
    """A job file to start from: what it does, and the example whose files it names."""

    about: str
    example: str


_RUNS = "runs of four search engines, and judgements"
_LETOR = "five LETOR files: places in the lists of four engines, and labels"
EXAMPLES = {
    "start": Example(
        f"{_RUNS}; {_LETOR}", (inputs.metasearch, inputs.cluster), "distagg rank rrf bm25.run dense.run links.run"
    ),
    "metasearch": Example(_RUNS, (inputs.metasearch,), "distagg rank rrf bm25.run dense.run"),
    "metrics": Example(_RUNS, (inputs.metasearch,), "distagg evaluate bm25.run dense.run qrels.txt -m ndcg@10"),
    "hybrid": Example("scores of two retrievers, and clicks", (inputs.hybrid,), "distagg tune lists.csv -m ndcg@5"),
    "ratings": Example(
        "ratings of thirty movies by two hundred users", (inputs.ratings,), "distagg rank mpm u.data --kind ratings"
    ),
    "pairs": Example(
        "battles of seven language models; lists of favourites", (inputs.pairs,), "distagg board battles.csv"
    ),
    "crowd": Example(
        "votes on ten pictures by good and bad annotators", (inputs.crowd,), "distagg rank crowd_bt votes.csv"
    ),
    "cluster": Example(_LETOR, (inputs.cluster,), "distagg import letor A1.txt A2.txt A3.txt A4.txt A5.txt -o data"),
    "jobs": Example(_LETOR, (inputs.cluster,), "distagg new nightly ."),
}
JOB_KINDS = {
    "fusion": JobKind("fuse runs of several engines, and evaluate the result", "metasearch"),
    "cross-validation": JobKind("compare models on five folds, with significance tests", "cluster"),
    "ratings": JobKind("rank items by the ratings of many users", "ratings"),
    "nightly": JobKind("import, compare, fit and rank every night; reuse what did not change", "cluster"),
    "board": JobKind("make a leaderboard of battles, with its page", "pairs"),
    "tuning": JobKind("tune a plain rule on labels, and rank by it", "hybrid"),
}


def write_example(name: str, folder: Path) -> list[str]:
    """Write the inputs of an example and its guide to a folder, which may not hold files of the same names.

    Returns the names of the files.
    """
    if name not in EXAMPLES:
        raise unknown("example", name, EXAMPLES)
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; an example is written to a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for make in EXAMPLES[name].makers:
        make(folder)
    (folder / f"{name}.md").write_text(_guide(name), encoding="utf-8")
    return sorted(file.name for file in folder.iterdir())


def _guide(name: str) -> str:
    """The text of a guide; links to pages that are not beside it become plain text.

    >>> _guide("metasearch").partition(":")[0]
    '# Meta-search'
    """
    return _LINK.sub(r"\1", _text(f"guides/{name}.md"))


def _text(name: str) -> str:
    """A guide or job file: of the clone, or as the wheel installed it below ``share/distagg``."""
    clone = Path(__file__).parents[2]
    if (clone / "pyproject.toml").is_file():
        return (clone / "jobs" / name).read_text(encoding="utf-8")
    try:
        installed = [
            Path(str(file.locate())) for file in files("distagg") or () if str(file).endswith(f"distagg/{name}")
        ]
    except PackageNotFoundError:
        installed = []
    if not any(file.is_file() for file in installed):
        raise UsageError(
            f"found no share/distagg/{name} of this installation, expected the files that the wheel installs there; "
            "install distagg again, without --target"
        )
    return installed[0].read_text(encoding="utf-8")


def write_job(kind: str, folder: Path) -> Path:
    """Write a commented job file to a folder, and return its path; an existing file is refused."""
    if kind not in JOB_KINDS:
        raise unknown("kind of job", kind, JOB_KINDS)
    target = folder / f"{kind}.toml"
    refuse_existing(target)
    folder.mkdir(parents=True, exist_ok=True)
    target.write_text(_text(target.name), encoding="utf-8")
    return target
