"""LETOR 4.0 aggregation files: ``label qid:Q 1:NULL 2:17 ... #docid = X inc = .. prob = ..``.

Feature numbers are the experts, a value is the item's position in that engine's full list (small = top), NULL means
that the engine does not list the item.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.errors import InputError
from distagg.sources.letor_lines import LINE_SHAPE, Lines, read_lines
from distagg.sources.source import SourceTable
from distagg.types import ITEMS


class LetorSource:
    """LETOR aggregation files; every file is a part. An item without a docid is called after its line, "L17".

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "A1.txt"
    ...     _ = file.write_text("1 qid:7 1:3 2:NULL #docid = a\\n0 qid:7 1:1 2:5 #docid = b\\n")
    ...     [table.table.to_pylist() for table in LetorSource([file]).tables()][1][0]
    {'query': '7', 'expert': '1', 'item': 'a', 'rank': 3.0}
    """

    name = "letor"
    partition: Literal["query", "expert"] = "query"

    def __init__(self, files: Sequence[str | Path]) -> None:
        self.files: tuple[Path, ...] = tuple(Path(file) for file in files)

    def tables(self) -> Iterator[SourceTable]:
        """Per block of lines, its items and then its entries."""
        seen = _SeenItems(self)
        for file in self.files:
            n_items = 0
            for lines in read_lines(file):
                n_items += len(lines.item)
                seen.add(lines)
                query = lines.query.dictionary_encode()
                items = pa.table([lines.query, lines.item, lines.label], schema=ITEMS)
                entries = pa.table(
                    {
                        "query": query.take(pa.array(lines.row)),
                        "expert": lines.expert,
                        "item": lines.item.take(pa.array(lines.row)),
                        "rank": lines.rank,
                    }
                )
                yield SourceTable("items", items, file.name)
                yield SourceTable("entries", entries, file.name)
            if n_items == 0:
                raise InputError(str(file), found="no items", expected=f"lines like {LINE_SHAPE}")
        seen.check_returned()

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        """File and line of every mention of the item, by the expert or (None) of its label."""
        found = []
        for file in self.files:
            for lines in read_lines(file):
                rows = np.flatnonzero(
                    pc.and_(pc.equal(lines.query, query), pc.equal(lines.item, item)).to_numpy(zero_copy_only=False)
                )
                if expert is not None and len(rows):
                    by_expert = pc.equal(lines.expert.cast(pa.string()), expert).to_numpy(zero_copy_only=False)
                    rows = rows[np.isin(rows, lines.row[by_expert])]
                found += [(str(file), int(line)) for line in lines.line[rows]]
        return found


class _SeenItems:
    """Refuses an item that has two lines in its query, holding the items of one query at a time.

    Queries stand together in LETOR files; one that returns later is rare, and checked by reading again.
    """

    def __init__(self, source: LetorSource) -> None:
        self.source = source
        self.queries: set[str] = set()
        self.returned: set[str] = set()
        self.last = ""
        self.last_items: set[str] = set()  # of the last query, which may go on in the next block

    def add(self, lines: Lines) -> None:
        if len(lines.item) == 0:
            return
        query, item = lines.query.dictionary_encode(), lines.item.dictionary_encode()
        codes = query.indices.to_numpy().astype(np.int64)
        keys = np.sort(codes * len(item.dictionary) + item.indices.to_numpy())
        twice = np.flatnonzero(keys[1:] == keys[:-1])
        if len(twice):
            code, item_code = divmod(int(keys[twice[0]]), len(item.dictionary))
            self._refuse(query.dictionary[code].as_py(), item.dictionary[item_code].as_py())
        names = query.dictionary.to_pylist()
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        again = codes[starts][np.bincount(codes[starts])[codes[starts]] > 1]
        self.returned.update(names[code] for code in again)
        goes_on = names[0] == self.last
        self.returned.update(name for name in names[goes_on:] if name in self.queries)
        first = lines.item.slice(0, starts[1] if len(starts) > 1 else len(lines.item)).to_pylist()
        if goes_on:
            for name in first:
                if name in self.last_items:
                    self._refuse(self.last, name)
        last = names[codes[-1]]
        tail = lines.item.slice(starts[-1]).to_pylist()
        self.last_items = self.last_items.union(tail) if last == self.last else set(tail)
        self.last = last
        self.queries.update(names)

    def check_returned(self) -> None:
        if not self.returned:
            return
        items: set[tuple[str, str]] = set()
        wanted = pa.array(sorted(self.returned), pa.string())
        for file in self.source.files:
            for lines in read_lines(file):
                mask = pc.is_in(lines.query, wanted)
                for key in zip(lines.query.filter(mask).to_pylist(), lines.item.filter(mask).to_pylist(), strict=True):
                    if key in items:
                        self._refuse(*key)
                    items.add(key)

    def _refuse(self, query: str, item: str) -> NoReturn:
        (first_file, first), (file, line) = self.source.locate(query, None, item)[:2]
        raise InputError(
            file,
            line=line,
            found=f"item '{item}' of query '{query}' again (first at {Path(first_file).name}:{first})",
            expected="one line for each item of a query",
            remedy="remove one of the two lines",
        )
