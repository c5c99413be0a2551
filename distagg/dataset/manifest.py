"""The manifest of a dataset: its counts, files (with hashes) and blocks, as versioned JSON.

A block is one row group of each table, the smallest unit to read. The commit marker is written last (see
``distagg.storage.atomic``): readers refuse a directory without it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeVar, get_args

from distagg.covariates import Covariate
from distagg.errors import InputError
from distagg.storage.atomic import ATTEMPT, MARKER
from distagg.storage.paths import P, Place, Store
from distagg.storage.sealed import MANIFEST, committed, manifest_file, read_manifest_json, sealed
from distagg.types import SCHEMA_VERSION

FORMAT, DATASET = "distagg-dataset", "a dataset made by 'distagg import'"
ITEMS_FILE, EXPERTS_FILE = "items.parquet", "experts.parquet"
VERIFIED = "_verified.json"  # when 'distagg verify' found everything whole

Partition = Literal["query", "expert"]
Kind = Literal["lists", "pairs"]


@dataclass(frozen=True, slots=True)
class Block:
    """Row group ``group`` of file pair ``file``: queries-NNNNN.parquet and lists- or pairs-NNNNN.parquet.

    In an expert-partitioned dataset every block covers the one query of queries-00000.parquet.
    """

    file: int
    group: int
    first_query: int  # dataset position of the block's first query
    queries: int
    items: int
    lists: int
    entries: int  # entries of lists, or pairs
    parts: tuple[str, ...]  # source files that the block's queries came from


@dataclass(frozen=True, slots=True)
class File:
    path: str
    rows: int
    bytes: int
    sha256: str
    footer: str = ""  # a hash of the footer; "" if an earlier version wrote the file


@dataclass(frozen=True, slots=True)
class Manifest:
    kind: Kind
    partition: Partition
    queries: int
    items: int
    experts: int
    lists: int
    entries: int
    ties: int  # entries that share their rank with another entry of their list (or tied pairs)
    scores: bool  # whether lists carry the experts' own scores
    positive: bool  # whether every rank is > 0 (false for ratings, whose rank is -rating)
    labels: dict[str, int]  # label -> items
    list_lengths: dict[str, int]  # min, median, max
    query_sizes: dict[str, int]  # min, median, max items of a query
    parts: tuple[str, ...]
    files: tuple[File, ...]
    blocks: tuple[Block, ...]
    source: str = ""  # a kind of source, "table" or "synthetic"; "" if version 0.1 did not record it
    times: tuple[int, int] | None = None  # of the first and the last pair, in microseconds since 1970
    moved: bool = False  # whether pairs have an order column, because grouping by expert has moved them
    covariates: tuple[Covariate, ...] = ()  # of pairs

    @property
    def protocol(self) -> Literal["letor", "trec"]:
        """The default protocol for metrics: ``letor`` for LETOR files, else ``trec``."""
        return "letor" if self.source in ("letor", "") else "trec"

    @property
    def missing(self) -> float:
        """The share of (item, expert) cells without a rank."""
        cells = self.items * self.experts
        return 1.0 - self.entries / cells if cells and self.kind == "lists" else 0.0

    def to_json(self) -> str:
        more = {"times": self.times, "moved": self.moved, "covariates": self.covariates}
        body = {"format": FORMAT, "schema": SCHEMA_VERSION, **asdict(self)}
        body = {name: value for name, value in body.items() if more.get(name, True)}  # only where there are some
        return sealed(body).decode()

    def sha256(self, name: str) -> str:
        """The SHA-256 of a file, which must be one of the dataset's."""
        return {file.path: file.sha256 for file in self.files}[name]


def load_manifest(directory: P) -> tuple[P, Manifest]:
    """Read and check the manifest of a committed dataset directory; also returns the folder of its files."""
    directory = committed(directory, DATASET)
    return directory, manifest_in(directory)


def manifest_in(directory: Place) -> Manifest:
    """Read and check the manifest of a dataset beside its files."""
    body = read_manifest_json(directory, FORMAT, DATASET)
    del body["format"], body["schema"]
    try:
        body["files"] = tuple(typed(File, f) for f in body["files"])
        body["blocks"] = tuple(typed(Block, {**b, "parts": tuple(b["parts"])}) for b in body["blocks"])
        body["parts"] = tuple(body["parts"])
        for name in ("list_lengths", "query_sizes"):
            body[name] = {key: _count(body[name][key], name) for key in ("min", "median", "max")}
        body["labels"] = {str(int(label)): _count(n, "labels") for label, n in body["labels"].items()}
        body["times"] = tuple(int(time) for time in body["times"]) if body.get("times") else None
        body["covariates"] = tuple(
            Covariate(**{**each, "source": tuple(each["source"]), "levels": tuple(each["levels"])})
            for each in body.get("covariates", ())
        )
        manifest = typed(Manifest, body)
        if manifest.kind not in get_args(Kind) or manifest.partition not in get_args(Partition):
            raise ValueError(f"kind {manifest.kind!r}, partition {manifest.partition!r}")
        manifest.sha256(EXPERTS_FILE)
        return manifest
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            str(directory / MANIFEST),
            found=f"fields that do not fit ({error})",
            expected=f"a version {SCHEMA_VERSION} dataset manifest",
            remedy="import the data again",
        ) from error


T = TypeVar("T")


def typed(kind: type[T], body: dict[str, Any]) -> T:
    """A record of a manifest; a TypeError if a number, a text or a truth value is something else."""
    for field in fields(kind):  # type: ignore[arg-type]
        value = body.get(field.name, field.default)
        if field.type == "int":
            _count(value, field.name)
        elif field.type in ("str", "bool") and type(value).__name__ != field.type:
            raise TypeError(f"{field.name} {value!r}")
    return kind(**body)


def _count(value: Any, name: str) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{name} {value!r}")
    return value


def is_dataset(where: Place) -> bool:
    """Whether this is the directory of a dataset, complete or not, rather than of source files."""
    if not where.is_dir():
        return False
    if isinstance(where, Store) and any(ATTEMPT.fullmatch(name) for name in where.sizes()):
        return True
    marker = where / MARKER  # it is empty, or names an attempt; other tools leave an empty one beside Parquet files
    return manifest_file(where).is_file() or (marker.is_file() and bool(marker.read_bytes()))
