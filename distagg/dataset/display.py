"""A dataset as people see it at a prompt (three lines) and in a notebook (a small table)."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distagg.dataset.dataset import Dataset

SHOWN = 8  # names or labels, before "..."


def as_text(dataset: Dataset) -> str:
    """Three lines: what it holds, whose it is, its labels and where it is.

    >>> import pyarrow as pa
    >>> from distagg.dataset import Dataset
    >>> lists = pa.table({"expert": ["a", "a", "b"], "item": ["x", "y", "y"], "rank": [1, 2, 1], "label": [0, 1, 1]})
    >>> Dataset.from_arrow(lists)
    Dataset of lists: 1 query, 2 items, 2 experts, 3 entries
    experts: a, b
    labels: 0 (1 item), 1 (1 item); no scores; in memory
    """
    facts = _facts(dataset)
    return (
        f"Dataset of {dataset.manifest.kind}: {', '.join(facts[name] for name in ('queries', 'items', 'given'))}\n"
        f"experts: {facts['experts']}\n"
        f"labels: {facts['labels']}; {facts['scores']}; {facts['place']}"
    )


def as_html(dataset: Dataset) -> str:
    """The same as a table with a row for each fact."""
    facts = _facts(dataset)
    rows = [("holds", f"{facts['queries']}, {facts['items']}, {facts['given']}")]
    rows += [(name, facts[name]) for name in ("experts", "labels", "scores", "place")]
    body = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(fact)}</td></tr>"
        for name, fact in rows
    )
    return f"<table><caption>Dataset of {dataset.manifest.kind}</caption><tbody>{body}</tbody></table>"


def _facts(dataset: Dataset) -> dict[str, str]:
    manifest = dataset.manifest
    entries = _counted(manifest.entries, "entry" if manifest.kind == "lists" else "pair")
    chosen = ", a selection" if dataset.where != type(dataset.where)() else ""
    return {
        "queries": _counted(manifest.queries, "query"),
        "items": _counted(manifest.items, "item"),
        "given": f"{_counted(manifest.experts, 'expert')}, {entries}",
        "experts": _some(dataset.experts),
        "labels": _some([f"{label} ({_counted(n, 'item')})" for label, n in manifest.labels.items()]) or "none",
        "scores": "with scores" if manifest.scores else "no scores",
        "place": (dataset.path or "in memory") + chosen,
    }


def _counted(n: int, noun: str) -> str:
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else many}"


def _some(words: list[str] | tuple[str, ...]) -> str:
    return ", ".join(words[:SHOWN]) + (", ..." if len(words) > SHOWN else "")
