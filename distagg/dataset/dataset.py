"""A dataset, on disk or in memory, and the plan that divides it into chunks.

The plan depends only on the data and the chunk budget, never on the number of workers.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from distagg.covariates import design, terms_of
from distagg.dataset.chunk import Chunk
from distagg.dataset.chunk_ref import EVERYTHING, ChunkRef, Elsewhere, Selection, table_file
from distagg.dataset.manifest import (
    EXPERTS_FILE,
    ITEMS_FILE,
    Block,
    Manifest,
    load_manifest,
    manifest_in,
)
from distagg.dataset.select import audience
from distagg.errors import InputError, UsageError, unknown
from distagg.storage.paths import Place, Store, absolute, place
from distagg.storage.verified import AGAIN, read_whole
from distagg.times import span_of, time_of, time_text

if TYPE_CHECKING:
    from distagg.dataset.expand import Piece

CHUNK_ENTRIES = 1 << 20  # about 12 MB of ranks; tens of milliseconds of work for a linear model


def _sizes(directory: Place, names: list[str]) -> dict[str, int | None]:
    """The sizes of the files that a directory should have; None for a missing file."""
    if isinstance(directory, Store):
        there = directory.sizes()
        return {name: there.get(name) for name in names}
    files = {name: directory / name for name in names}
    return {name: file.stat().st_size if file.is_file() else None for name, file in files.items()}


@dataclass(frozen=True, slots=True)
class Dataset:
    """Queries, items, lists and labels: opened from a directory, or built in memory.

    ``path`` is its directory, ``manifest`` its contents, ``experts`` their names; ``where`` is the selection of
    ``select``, ``held`` the chunks of a dataset in memory, ``pieces`` the recipe of a view (``expanded``). Get one from
    ``open``, ``from_arrow``, ``from_pandas``, ``from_polars``, or ``distagg.import_dataset``.

    >>> import pyarrow as pa
    >>> table = pa.table({"query": ["q"] * 3, "expert": ["a"] * 3, "item": ["x", "y", "z"], "rank": [1, 2, 3]})
    >>> Dataset.from_arrow(table).manifest.entries
    3
    """

    path: str  # "" when in memory
    manifest: Manifest
    experts: tuple[str, ...]
    where: Selection = EVERYTHING
    held: tuple[Chunk | Elsewhere, ...] = ()
    pieces: tuple[Piece, ...] = ()  # of a view (``expanded``): how to make each block

    def __repr__(self) -> str:
        from distagg.dataset.display import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from distagg.dataset.display import as_html

        return as_html(self)

    @classmethod
    def open(cls, path: str | Place) -> Dataset:
        """Open a committed dataset directory, given by its path or URL."""
        directory, manifest = load_manifest(place(path))
        return cls.in_folder(directory, manifest)

    @classmethod
    def in_folder(cls, directory: Place, manifest: Manifest | None = None) -> Dataset:
        """Open the dataset whose files and manifest are in this folder; all files must have their size."""
        manifest = manifest or manifest_in(directory)
        sizes = _sizes(directory, [file.path for file in manifest.files])
        for file in manifest.files:
            size = sizes[file.path]
            if size != file.bytes:
                raise InputError(
                    str(directory / file.path),
                    found="no such file" if size is None else f"{size} bytes",
                    expected=f"the {file.bytes} bytes that the manifest names",
                    remedy=AGAIN,
                )
        names = read_whole(directory / EXPERTS_FILE, manifest.sha256(EXPERTS_FILE))["expert"]
        if len(names) != manifest.experts:
            raise InputError(
                str(directory / EXPERTS_FILE),
                found=f"{len(names)} experts",
                expected=f"the {manifest.experts} that the manifest names",
                remedy=AGAIN,
            )
        return cls(str(directory), manifest, tuple(names.to_pylist()))

    @classmethod
    def from_arrow(
        cls, table: pa.Table, *, labels: pa.Table | None = None, judgements: pa.Table | None = None
    ) -> Dataset:
        """Build a dataset in memory from a long table.

        Parameters
        ----------
        table
            Columns query, expert, item, rank or score, and optionally label; or winner, loser, and optionally query,
            expert, weight, tie. Without a query column all rows belong to one query, "all".
        labels
            Columns query, item, label: the items to rank, in this order, including those in no list.
        judgements
            The same columns, but labels only: an item in no list counts as missed and is not ranked.
        """
        from distagg.dataset.frames import dataset_from_arrow

        return dataset_from_arrow(table, labels=labels, judgements=judgements)

    @classmethod
    def from_pandas(cls, frame: Any, *, labels: Any = None, judgements: Any = None) -> Dataset:
        """As ``from_arrow``, from pandas frames."""
        tables = [None if f is None else pa.Table.from_pandas(f, preserve_index=False) for f in (labels, judgements)]
        table = pa.Table.from_pandas(frame, preserve_index=False)
        return cls.from_arrow(table, labels=tables[0], judgements=tables[1])

    @classmethod
    def from_polars(cls, frame: Any, *, labels: Any = None, judgements: Any = None) -> Dataset:
        """As ``from_arrow``, from polars frames."""
        tables = [None if f is None else f.to_arrow() for f in (labels, judgements)]
        return cls.from_arrow(frame.to_arrow(), labels=tables[0], judgements=tables[1])

    @classmethod
    def from_dask(cls, data: Any, *, columns: Mapping[str, str] | None = None, labels: Any = None) -> Dataset:
        """Build a dataset from a Dask collection; its rows stay on the workers of the current ``distributed.Client``.

        Nothing is computed before the dataset is first used: the workers then exchange the rows by query, once.

        Parameters
        ----------
        data
            A ``dask.dataframe`` with the columns of ``from_arrow``, its rows in any order; a ``dask.bag`` of lists
            ``(query, expert, items)``, or dictionaries with these keys, the best item first (ties: a list in the list);
            or item x expert matrices of ranks: a dictionary ``{query: dask.array}``, or a bag of ``(query, matrix)``
            with matrices of numpy (0 or NaN: not listed), scipy or sparse; their items and experts are named by number.
        columns
            distagg's names for columns that have other names in the data: ``{"site": "item"}``.
        labels
            Relevance judgements: a Dask frame, or any other kind that ``distagg.fit`` takes.
        """
        return _engine().from_dask(data, columns=columns, labels=labels)

    def to_dask(self) -> Any:
        """The rows as a lazy ``dask.dataframe`` with a partition for each chunk, which workers read."""
        return _engine().to_dask(self)

    def to_dask_matrices(self) -> dict[str, Any]:
        """Item x expert matrices of ranks by query: lazy ``dask.array`` with one ``sparse.COO`` block, read by workers.

        Rows are the items of the query in their order, columns the ``experts``; an item that an expert does not list is
        not stored. ``from_dask`` takes such a dictionary back, with items and experts named by their numbers.
        """
        matrices: dict[str, Any] = _engine("dask_matrices").to_matrices(self)
        return matrices

    def map_queries(self, function: Callable[[Chunk, int], Any], runner: Any = None) -> Iterator[Any]:
        """Call a function on every query, and iterate over the results in the order of the queries.

        Parameters
        ----------
        function
            ``function(chunk, query)``; ``query`` is the number of the query in the chunk. ``chunk.rank_matrix(query)``
            is its item x expert matrix of ranks (scipy), ``chunk.pair_tensor(query)`` the item x item x expert tensor
            (sparse), ``chunk.query_ids[query]`` its id. On a cluster it must be a function of a module.
        runner
            Where to run: None runs in this process, where the data is; a ``distributed.Client`` or another runner.

        >>> table = pa.table({"query": list("qqr"), "expert": list("aaa"), "item": list("xyx"), "rank": [1, 2, 3]})
        >>> shapes = Dataset.from_arrow(table).map_queries(lambda chunk, query: chunk.rank_matrix(query).shape)
        >>> list(shapes)
        [(2, 1), (1, 1)]
        """
        from importlib import import_module

        runner = import_module("distagg.engine.runner").runner_for(runner, self)
        return _engine().map_queries(self, function, runner)

    def to_arrow(self) -> pa.Table:
        """The rows as one long table with ids, as ``from_arrow`` takes it."""
        from distagg.dataset.frames import dataset_to_arrow

        return dataset_to_arrow(self)

    def to_pandas(self) -> Any:
        """The rows as a pandas frame."""
        from distagg.dataset.interchange import as_pandas

        return as_pandas(self.to_arrow())

    def to_polars(self) -> Any:
        """The rows as a polars frame."""
        from distagg.dataset.interchange import as_polars

        return as_polars(self.to_arrow())

    def select(
        self,
        *,
        parts: list[str] | None = None,
        fold: tuple[int, set[int]] | None = None,
        without: Collection[str] = (),
        audience: str | None = None,
        draw: tuple[int, int] | None = None,
        depth: int = 0,
        since: str | None = None,
        until: str | None = None,
        half_life: str | None = None,
        now: str | None = None,
        covariates: str | None = None,
    ) -> Dataset:
        """Select queries, experts, the first entries of lists, or pairs.

        Parameters
        ----------
        parts
            Select the queries of these source parts.
        fold
            Select the queries whose position has one of these residues: (modulus, residues).
        without
            Experts to exclude: they stay in ``experts``, but have no lists.
        audience
            Select the experts that match a condition on their columns: ``age < 25 and gender = 'F'``.
        draw
            Draw as many experts as are selected, with replacement: (seed, number of the draw).
        depth
            Select the first entries of each list, this many and those that tie with the last of them; 0 selects all.
            Items that are in no list any more stay in their query, as unlisted ones.
        since, until
            Select pairs by their time: at or after ``since``, before ``until``. Both are dates (``2026-03-31``),
            timestamps, or seconds since 1970. Items that are in no pair any more stay in their query.
        half_life
            Halve the weight of a pair for each such span of its age: ``90d``, ``36h`` (units s, h, d, w).
        now
            The time from which age is counted; by default ``until`` or, without it, the time of the last pair. Pairs
            after it keep their weight.
        covariates
            The covariates to load, as models take them (``"length_a-length_b,position"``), each as seen from the
            winner; by default the columns that are stored.
        """
        where = self.where
        if parts is not None:
            for part in parts:
                if part not in self.manifest.parts:
                    raise UsageError(f"no part '{part}' in the dataset; it has {', '.join(self.manifest.parts)}")
            where = replace(where, parts=frozenset(parts))
        if fold is not None:
            where = replace(where, modulus=fold[0], residues=frozenset(fold[1]))
        for name in without:
            if name not in self.experts:
                raise unknown("expert", name, self.experts)
            where = replace(where, without=where.without | {self.experts.index(name)})
        if audience is not None:
            where = replace(where, audience=self._checked_audience(audience))
        if draw is not None:
            where = replace(where, draw=draw)
        if depth:
            where = replace(where, depth=min(depth, where.depth or depth))
        if since is not None or until is not None or half_life is not None:
            where = self._timed(where, since, until, half_life, now)
        if covariates is not None:
            where = replace(where, covariates=design(terms_of(covariates), self.manifest.covariates))
        return replace(self, where=where)

    def _timed(
        self, where: Selection, since: str | None, until: str | None, half_life: str | None, now: str | None
    ) -> Selection:
        """The selection by time; refused without times, or if no pair can be selected."""
        if self.manifest.times is None:
            raise UsageError("the data have no times; since, until and half_life need pairs with a column time")
        first, last = self.manifest.times
        if since is not None:
            where = replace(where, since=time_of(since, "since"))
        if until is not None:
            where = replace(where, until=time_of(until, "until"))
        start, end = where.since, where.until
        if (start is not None and start > last) or (end is not None and end <= max(first, start or first)):
            bounds = [f"{name} {time_text(t)}" for name, t in (("since", start), ("until", end)) if t is not None]
            raise UsageError(
                f"no pair is {' and '.join(bounds)}: the data's times are {time_text(first)} to {time_text(last)}"
            )
        if half_life is not None:
            newest = last if end is None else min(end, last)
            reference = newest if now is None else time_of(now, "now")
            where = replace(where, half_life=span_of(half_life, "half_life"), now=reference)
        return where

    def _checked_audience(self, text: str) -> str:
        if not self.path or self.pieces:
            raise UsageError("a condition needs a dataset on disk with attributes of experts; import it with --users")
        if not audience(self.path, text).any():
            raise UsageError(f"condition {text!r}: it matches none of the {self.manifest.experts:,} experts")
        return text

    @property
    def audience_size(self) -> int:
        """The number of selected experts."""
        return int(audience(self.path, self.where.audience).sum()) if self.where.audience else self.manifest.experts

    @property
    def titles(self) -> pa.Table | None:
        """Attributes of items (item, title and others) if they were imported, else None."""
        if all(file.path != ITEMS_FILE for file in self.manifest.files):
            return None
        return read_whole(place(self.path) / ITEMS_FILE, self.manifest.sha256(ITEMS_FILE))

    def plan(self, chunk_entries: int = CHUNK_ENTRIES) -> tuple[ChunkRef, ...]:
        """Chunk references in dataset order: consecutive blocks up to the budget make a chunk."""
        make = functools.partial(
            ChunkRef,
            absolute(self.path),
            self.manifest.kind,
            self.manifest.partition,
            n_experts=self.manifest.experts,
            scores=self.manifest.scores,
            where=self.where,
        )
        blocks = self.manifest.blocks
        wanted = [self.where.parts is None or not self.where.parts.isdisjoint(block.parts) for block in blocks]
        if self.held:
            held = zip(blocks, self.held, wanted, strict=True)
            return tuple(make((block,), held=chunk) for block, chunk, has in held if has)
        groups: list[list[Block]] = []
        cost = 0
        for block in itertools.compress(blocks, wanted):
            # Lists of one query share its items, which therefore count once.
            weight = block.entries + (block.items if self.manifest.partition == "query" else 0)
            if groups and groups[-1] and cost + weight <= chunk_entries and _adjacent(groups[-1][-1], block):
                groups[-1].append(block)
                cost += weight
            else:
                groups.append([block])
                cost = weight
        pieces = dict(zip(self.manifest.blocks, self.pieces, strict=True)) if self.pieces else {}
        hashes = {file.path: file.footer for file in self.manifest.files if file.footer and not self.pieces}
        return tuple(
            make(
                tuple(group),
                pieces=tuple(pieces[b] for b in group if pieces),
                footers=tuple((name, hashes[name]) for name in self._files(group) if name in hashes),
            )
            for group in groups
        )

    def _files(self, blocks: Sequence[Block]) -> list[str]:
        """The names of the files of these blocks."""
        numbers = dict.fromkeys(block.file for block in blocks)
        queries = numbers if self.manifest.partition == "query" else (0,)
        return [table_file("queries", n) for n in queries] + [table_file(self.manifest.kind, n) for n in numbers]

    def chunks(self, *, ids: bool = True) -> Iterator[Chunk]:
        """Load the chunks of the plan one at a time; without ``ids`` the item ids stay on disk."""
        for ref in self.plan():
            yield ref.load(ids=ids)

    def info(self) -> dict[str, Any]:
        """Facts about the dataset, as printed by ``distagg info --json``."""
        m = self.manifest
        return {
            "source": m.source or "unknown", "kind": m.kind, "partition": m.partition, "queries": m.queries,
            "items": m.items, "experts": m.experts, "lists": m.lists, "entries": m.entries, "missing": m.missing,
            "labels": m.labels, "ties": m.ties, "scores": m.scores, "list_lengths": m.list_lengths,
            "query_sizes": m.query_sizes, "parts": list(m.parts), "blocks": len(m.blocks),
            **({"times": [time_text(time) for time in m.times]} if m.times else {}),
            **({"covariates": [each.name for each in m.covariates]} if m.covariates else {}),
        }  # fmt: skip


def _engine(name: str = "collections") -> Any:
    """A module that knows Dask; it is above this layer, and found by name when somebody asks for it."""
    from importlib import import_module

    return import_module(f"distagg.engine.{name}")


def _adjacent(a: Block, b: Block) -> bool:
    """Whether the queries of ``b`` follow those of ``a``, or both have lists of the same query."""
    return b.first_query in (a.first_query + a.queries, a.first_query)
