"""PrefLib out: the lists of a dataset as ordinal files, one for each query (Mattei & Walsh 2013, format of 2022).

The suffix says what the orders are: .soc (strict, complete), .soi (strict, incomplete), .toc and .toi (with ties).
Equal orders are one line with a count. Items keep their names; the format has no names of voters, ranks or labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from urllib.parse import quote

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.errors import InputError, UsageError
from distagg.storage.atomic import staged_directory
from distagg.storage.paths import Place

Order = tuple[tuple[int, ...], ...]  # groups of tied items, the best first
SAFE = " !#$&'()+,-.;=@[]^_`{}~"  # in names of files, beside letters and digits


def write_preflib(dataset: Dataset, target: Place, progress: Callable[[int], None] = lambda entries: None) -> int:
    """Write a directory of PrefLib files, one for each query, and return their number.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import pyarrow as pa
    >>> votes = {"expert": ["ann", "ann", "bob"], "item": ["x", "y", "y"], "rank": [1, 2, 1]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder) / "votes"
    ...     _ = write_preflib(Dataset.from_arrow(pa.table(votes)), target)
    ...     print([file.name for file in target.glob("*.so*")], (target / "all.soi").read_text().split()[-4:])
    ['all.soi'] ['1:', '1,2', '1:', '2']
    """
    if dataset.manifest.kind != "lists":
        raise UsageError("PrefLib's ordinal files hold lists, and the data are pairs; export lists or rankings")
    files = 0
    with staged_directory(target) as folder:
        for query, items, orders in _queries(dataset, progress):
            name = f"{quote(query, safe=SAFE)}.{suffix_of(orders, len(items))}"
            body = preflib_text(name, query, items, orders)
            (folder / name).write_text(body, encoding="utf-8")
            files += 1
    return files


def _queries(dataset: Dataset, progress: Callable[[int], None]) -> Iterator[tuple[str, list[str], Counter[Order]]]:
    """The name, items and orders of every query; a split query is gathered over its chunks."""
    gathered: Counter[Order] = Counter()
    chunk = None
    for chunk in dataset.chunks(ids=True):
        for q in range(chunk.n_queries):
            gathered.update(orders_of(chunk, q))
            if dataset.manifest.partition == "query":
                yield str(chunk.query_ids[q]), items_of(chunk, q), gathered
                gathered = Counter()
        progress(chunk.n_entries)
    if chunk is not None and dataset.manifest.partition == "expert":
        yield str(chunk.query_ids[0]), items_of(chunk, 0), gathered


def items_of(chunk: Chunk, q: int) -> list[str]:
    """The names of a query's items, which the format must be able to hold."""
    names = chunk.item_ids[chunk.item_offsets[q] : chunk.item_offsets[q + 1]].to_pylist()
    for name in names:
        if name != name.strip() or not name or len(name.splitlines()) > 1:
            raise InputError(
                f"query {chunk.query_ids[q]}",
                found=f"item {name!r}",
                expected="names on one line, without blanks at their ends, for PrefLib",
            )
    return names


def orders_of(chunk: Chunk, q: int) -> Iterator[Order]:
    """The order of every list of a query that holds any item."""
    for a in range(chunk.list_offsets[q], chunk.list_offsets[q + 1]):
        span = slice(chunk.entry_offsets[a], chunk.entry_offsets[a + 1])
        items, ranks = chunk.entry_item[span], chunk.entry_rank[span]
        if len(items):
            starts = np.flatnonzero(np.diff(ranks)) + 1
            yield tuple(tuple(sorted(group.tolist())) for group in np.split(items, starts))


def suffix_of(orders: Counter[Order], size: int) -> str:
    """Which of PrefLib's kinds the orders are."""
    ties = any(len(group) > 1 for order in orders for group in order)
    complete = all(sum(map(len, order)) == size for order in orders)
    return f"{'t' if ties else 's'}o{'c' if complete else 'i'}"


def preflib_text(name: str, query: str, items: list[str], orders: Counter[Order]) -> str:
    """The text of a file: header, names, and orders by falling count."""
    header = {
        "FILE NAME": name,
        "TITLE": query,
        "DESCRIPTION": "",
        "DATA TYPE": name.rpartition(".")[2],
        "MODIFICATION TYPE": "original",
        "RELATES TO": "",
        "RELATED FILES": "",
        "PUBLICATION DATE": "",
        "MODIFICATION DATE": "",
        "NUMBER ALTERNATIVES": len(items),
        "NUMBER VOTERS": orders.total(),
        "NUMBER UNIQUE ORDERS": len(orders),
        **{f"ALTERNATIVE NAME {number}": item for number, item in enumerate(items, start=1)},
    }
    lines = [f"# {key}: {value}".rstrip() for key, value in header.items()]
    lines += [
        f"{count}: {_written(order)}" for order, count in sorted(orders.items(), key=lambda row: (-row[1], row[0]))
    ]
    return "\n".join(lines) + "\n"


def _written(order: Order) -> str:
    groups = (",".join(str(item + 1) for item in group) for group in order)
    return ",".join(text if len(group) == 1 else f"{{{text}}}" for text, group in zip(groups, order, strict=True))
