"""Incremental ranking: reuse the parts of an earlier ranking whose inputs did not change.

Each ranking has a *recipe*: everything that all parts depend on (model, settings, learned parameters, format, experts,
and the caller's additions such as code version and seed), and the digests of the input blocks of each part. Parts with
the same recipe have the same bytes, whatever their numbers, so they are copied from the earlier ranking and checked by
their hash. For every other part the reason is reported. Blocks are hashed as they are on disk: about a second for
some gigabytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.dataset.check import check_columns
from distagg.dataset.chunk_ref import ChunkRef
from distagg.dataset.dataset import Dataset
from distagg.dataset.manifest import Block
from distagg.engine.runner import Runner
from distagg.errors import InputError
from distagg.models import Model, Params, draws
from distagg.rankings.files import FITS, Format, RankedPart, Written
from distagg.storage.atomic import digest, write_whole
from distagg.storage.parquet import columns_of
from distagg.storage.paths import Place, place, size_of
from distagg.storage.sealed import read_sealed, sealed
from distagg.storage.staging import link
from distagg.storage.verified import AGAIN, UNREADABLE, read_groups, unreadable
from distagg.types import LISTS_TABLE

NotedPart = tuple[RankedPart, list[str]]  # a part, and the model's notes on it (not converged)
SHOWN = 4
_REASONS = {
    "model": "another model",
    "settings": "the model's settings changed",
    "params": "the model was fitted again",
    "format": "another format",
    "top": "another top",
    "code": "the code changed",
    "seed": "another seed",
    "experts": "the experts changed",
    "data": "another kind of data",
}


@dataclass(frozen=True, slots=True)
class Reuse:
    """Where to write this ranking's recipe, what else its parts depend on, and the earlier ranking with its recipe."""

    recipe: Path
    context: dict[str, Any]
    earlier: Path | None = None
    earlier_recipe: Path | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the parts of a ranking depend on: ``shared`` by all parts, and the input blocks of each."""

    shared: dict[str, Any]
    blocks: list[list[str]]  # digests, by part

    def key(self, number: int) -> str:
        return json.dumps([self.shared, self.blocks[number]], sort_keys=True)

    def write(self, file: Path, parts: Sequence[NotedPart]) -> None:
        """Write it, with the row count, SHA-256 and notes of every part."""
        rows = [
            {"blocks": mine, "notes": notes, **dataclasses.asdict(part)}
            for mine, (part, notes) in zip(self.blocks, parts, strict=True)
        ]
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, sealed({"shared": self.shared, "parts": rows}, sort=False))


def recipe_of(
    model: Model,
    params: Params,
    dataset: Dataset,
    refs: Sequence[ChunkRef],
    fmt: Format,
    top: int,
    runner: Runner,
    context: dict[str, Any],
) -> Recipe:
    """The recipe of a ranking that is about to be computed."""
    about = dataset.manifest
    shared = {
        "model": model.name,
        "settings": dataclasses.asdict(model),
        "params": learned(params),
        "format": fmt,
        "top": top,
        "experts": about.experts,
        "data": [about.kind, about.partition, about.scores],
        **context,
    }
    shared = json.loads(json.dumps(shared))  # so that it equals what will be read back
    if about.partition == "expert":  # one part, which depends on the whole dataset
        return Recipe(shared, [[hashlib.sha256(about.to_json().encode()).hexdigest()] for _ in refs])
    payloads = [(ref.path, about.kind, ref.blocks, draws(type(model))) for ref in refs]
    return Recipe(shared, list(runner.each(block_digests, payloads)))


def learned(params: Params) -> str:
    """A hash of parameters."""
    total = hashlib.sha256()
    for name in sorted(params):
        array = np.ascontiguousarray(params[name])
        total.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return total.hexdigest()


def block_digests(payload: tuple[str, str, Sequence[Block], bool]) -> list[str]:
    """The digest of each block's content; with ``placed`` also of the position of its queries in the dataset.

    Models that draw random numbers seed them by the query's position. For all others queries added in front must change
    nothing: query positions in lists are hashed relative to the block's first query.
    """
    path, kind, blocks, placed = payload
    digests = []
    for block in blocks:
        total = hashlib.sha256(f"{block.queries} {block.first_query if placed else ''}".encode())
        for table in ("queries", kind):
            file = place(path) / f"{table}-{block.file:05d}.parquet"
            _add_columns(total, file, block.group, without="" if table == "queries" else "query")
        rows = read_groups(file, [block.group], ["query"])
        check_columns(rows, pa.schema([LISTS_TABLE.field("query")]), (), str(file))
        total.update(np.ascontiguousarray(rows["query"].to_numpy() - block.first_query).tobytes())
        digests.append(total.hexdigest())
    return digests


def _add_columns(total: Any, file: Place, group: int, *, without: str) -> None:
    """Hash the columns of a row group as they are in the file."""
    try:
        size = size_of(file)
        with file.open("rb") as raw:
            for column in columns_of(file, group):
                if column.path_in_schema == without:
                    continue
                first = min(at for at in (column.data_page_offset, column.dictionary_page_offset) if at)
                if not 0 < first <= first + column.total_compressed_size <= size:
                    raise ValueError(f"column {column.path_in_schema} outside the file")
                raw.seek(first)
                total.update(f"{column.path_in_schema} {column.num_values} {column.encodings}".encode())
                total.update(raw.read(column.total_compressed_size))
    except UNREADABLE as error:
        raise unreadable(file, error, AGAIN) from error


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier ranking whose parts may be reused."""

    path: Path
    recipe: Recipe
    rows: list[dict[str, Any]]

    @classmethod
    def open(cls, reuse: Reuse) -> Earlier | None:
        """The earlier ranking, or None if there is none or it cannot be read."""
        if reuse.earlier is None or reuse.earlier_recipe is None:
            return None
        try:
            body = read_sealed(reuse.earlier_recipe)
            return cls(reuse.earlier, Recipe(body["shared"], [row["blocks"] for row in body["parts"]]), body["parts"])
        except (InputError, KeyError, TypeError):
            return None

    def find(self, recipe: Recipe) -> dict[int, int]:
        """For every part of another recipe that this ranking contains: its number here."""
        then = {self.recipe.key(n): n for n in range(len(self.rows))}
        keys = {n: recipe.key(n) for n in range(len(recipe.blocks))}
        return {n: then[key] for n, key in keys.items() if key in then}

    def why(self, recipe: Recipe, number: int) -> str:
        """Why a part cannot be reused."""
        old, new = self.recipe.shared, recipe.shared
        differing = [name for name in sorted(old | new) if old.get(name) != new.get(name)]
        if differing:
            return "; ".join(f"{_REASONS.get(name, name)}{_change(old.get(name), new.get(name))}" for name in differing)
        before = [digest for part in self.recipe.blocks for digest in part]
        known, first = set(before), sum(len(part) for part in recipe.blocks[:number])
        unknown = [first + n for n, block in enumerate(recipe.blocks[number]) if block not in known]
        changed, added = ([n for n in unknown if (n < len(before)) == existed] for existed in (True, False))
        reasons = [f"input {_blocks(some)} {word}" for some, word in ((changed, "changed"), (added, "new")) if some]
        return "; ".join(reasons) or "the same input blocks, in other parts"

    def take(self, then: int, staging: Path, number: int) -> NotedPart | None:
        """Copy part ``then`` to staging as an attempt of part ``number``; None if its bytes are missing or damaged."""
        row = self.rows[then]
        try:
            ranking = self._copy(row["ranking"], f"part-{number:05d}", staging, then)
            fits = self._copy_fits(row["fits"], number, staging, then) if row["fits"] else None
        except (OSError, ValueError):
            return None
        return RankedPart(ranking, fits, tuple(row["columns"]), row["unfinished"]), row["notes"]

    def _copy_fits(self, written: dict[str, Any], number: int, staging: Path, then: int) -> Written:
        (staging / FITS).mkdir(exist_ok=True)
        return self._copy(written, f"{FITS}/fits-{number:05d}", staging, then)

    def _copy(self, written: dict[str, Any], stem: str, staging: Path, then: int) -> Written:
        attempt = f"{stem}.{uuid.uuid4().hex[:8]}"
        target = staging / attempt
        if self.path.is_dir():
            link(self.path / f"{stem[:-5]}{then:05d}.parquet", target)
        else:
            behind = sum(row["ranking"]["bytes"] for row in self.rows[then:])
            with self.path.open("rb") as file:  # a file ends with its parts; csv has a line before them
                file.seek(-behind, os.SEEK_END)
                target.write_bytes(file.read(written["bytes"]))
        if digest(target) != written["sha256"]:
            target.unlink()
            raise ValueError(f"{self.path} is damaged")
        return Written(attempt, written["rows"], written["bytes"], written["sha256"])


def _change(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        differing = [name for name in sorted(old | new) if old.get(name) != new.get(name)]
        return f" ({', '.join(differing)})"
    short = all(isinstance(value, int) or (isinstance(value, str) and len(value) < 40) for value in (old, new))
    return f" (was {old}, is {new})" if short else ""


def _blocks(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:SHOWN])) + (f" and {len(numbers) - SHOWN} more" if numbers[SHOWN:] else "")
    return f"block{'s' if len(numbers) > 1 else ''} {shown}"
