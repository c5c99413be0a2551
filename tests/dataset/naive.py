"""Regrouping as anybody would write it, with dictionaries and sorted lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa

from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.types import ENTRIES, ITEMS, NO_LABEL, PAIRS

Partition = Literal["query", "expert"]
SCHEMAS = {"entries": ENTRIES, "items": ITEMS, "judgements": ITEMS, "pairs": PAIRS}


@dataclass(frozen=True)
class Rows:
    kind: Literal["entries", "items", "judgements", "pairs"]
    rows: list[dict[str, object]]
    part: str = ""

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, SCHEMAS[self.kind])


@dataclass(frozen=True)
class ListSource:
    """Rows in memory, under a name that errors show."""

    given: Sequence[Rows]
    partition: Partition = "query"
    files: tuple[Path, ...] = (Path("made-up"),)
    name: str = "made-up"

    def tables(self) -> Iterator[Rows]:
        return iter(self.given)

    def locate(self, query: str, expert: str | None, item: str) -> list[tuple[str, int]]:
        found, line = [], 0
        for rows in self.given:
            for row in rows.rows:
                line += 1
                if row["query"] == query and item in (row.get("item"), row.get("winner")):
                    if expert is None and rows.kind in ("items", "judgements"):
                        found.append(("made-up", line))
                    if expert is not None and row.get("expert") == expert:
                        found.append(("made-up", line))
        return found


@dataclass
class Query:
    part: str = ""
    items: list[str] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    missed: list[int] = field(default_factory=list)
    lists: dict[str, list[tuple[str, float, float | None]]] = field(default_factory=dict)
    pairs: list[tuple[str, str, str, float, bool]] = field(default_factory=list)


def naive_regroup(given: Sequence[Rows], partition: Partition) -> dict[str, Query]:
    """Queries in order of first appearance; rows must not clash."""
    names = list(dict.fromkeys(str(row["query"]) for rows in given for row in rows.rows))
    ranked = [rows for rows in given if rows.kind in ("entries", "pairs")]
    experts = list(dict.fromkeys(str(row["expert"]) for rows in ranked for row in rows.rows))
    queries = {}
    for name in names:
        query = _naive_query(name, given, experts, partition)
        if query.items:
            queries[name] = query
    return queries


def _naive_query(name: str, given: Sequence[Rows], experts: list[str], partition: Partition) -> Query:
    query = Query()
    mine = [(rows.kind, rows.part, row) for rows in given for row in rows.rows if row["query"] == name]
    query.part = next((part for kind, part, _ in mine if kind != "judgements"), "")
    declared = [str(row["item"]) for kind, _, row in mine if kind == "items"]
    ranked = [row for kind, _, row in mine if kind in ("entries", "pairs")]
    by_expert = sorted(ranked, key=lambda row: experts.index(str(row["expert"])))
    mentioned = []
    for row in by_expert if partition == "query" else ranked:
        mentioned += [str(row["item"])] if "item" in row else [str(row["winner"]), str(row["loser"])]
    query.items = list(dict.fromkeys(declared + mentioned))
    missed: dict[str, int] = {}
    for kind, _, row in mine:
        if kind in ("items", "judgements") and row["label"] is not None:
            known = query.labels if row["item"] in query.items else missed
            known[str(row["item"])] = int(str(row["label"]))
    query.missed = list(missed.values())
    for row in by_expert:
        expert = str(row["expert"])
        if "winner" in row:
            query.pairs.append((expert, str(row["winner"]), str(row["loser"]), row["weight"], row["tie"]))  # type: ignore[arg-type]
        else:
            query.lists.setdefault(expert, []).append((str(row["item"]), row["rank"], row.get("score")))  # type: ignore[arg-type]
    query.lists = {expert: _naive_list(query.items, entries) for expert, entries in query.lists.items()}
    return query


def _naive_list(
    items: list[str], entries: list[tuple[str, float | None, float | None]]
) -> list[tuple[str, float, float | None]]:
    ranked = []
    for item, rank, score in entries:
        if rank is None:
            assert score is not None
            rank = 1.0 + sum(other > score for _, _, other in entries if other is not None)
        ranked.append((item, rank, score))
    return sorted(ranked, key=lambda entry: (entry[1], items.index(entry[0])))


def read_back(dataset: Dataset) -> dict[str, Query]:
    """A dataset as the same structure."""
    queries: dict[str, Query] = {}
    for chunk in dataset.chunks():
        for at, name in enumerate(chunk.query_ids.to_pylist()):
            query = queries.setdefault(name, Query(part=chunk.parts[at].as_py()))
            _read_query(query, chunk, at, dataset.experts)
    return queries


def _read_query(query: Query, chunk: Chunk, at: int, experts: tuple[str, ...]) -> None:
    span = slice(chunk.item_offsets[at], chunk.item_offsets[at + 1])
    query.items = chunk.item_ids.to_pylist()[span]
    labels = zip(query.items, chunk.labels[span].tolist(), strict=True)
    query.labels = {item: label for item, label in labels if label != NO_LABEL}
    query.missed = chunk.missed_labels[chunk.missed_offsets[at] : chunk.missed_offsets[at + 1]].tolist()
    for a_list in range(chunk.list_offsets[at], chunk.list_offsets[at + 1]):
        entries = []
        for entry in range(chunk.entry_offsets[a_list], chunk.entry_offsets[a_list + 1]):
            score = float(chunk.entry_score[entry]) if len(chunk.entry_score) else None
            entries.append((query.items[chunk.entry_item[entry]], float(chunk.entry_rank[entry]), score))
        expert = experts[chunk.list_expert[a_list]]
        assert expert not in query.lists, "a list must stand in one piece"
        query.lists[expert] = entries
    for pair in range(chunk.pair_offsets[at], chunk.pair_offsets[at + 1]):
        winner, loser = query.items[chunk.pair_winner[pair]], query.items[chunk.pair_loser[pair]]
        expert = experts[chunk.pair_expert[pair]]
        query.pairs.append((expert, winner, loser, float(chunk.pair_weight[pair]), bool(chunk.pair_tie[pair])))
