"""Data of any kind to datasets, and rankings back in the kind that came in."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_arrow, as_words
from distagg.columns import (
    BATTLE_NAMES,
    LIST_NAMES,
    PAIR_NAMES,
    Names,
    counts_from_zero,
    known_columns,
    label_columns,
    not_understood,
)
from distagg.dataset.dataset import Dataset
from distagg.dataset.frames import dataset_from_arrow
from distagg.dataset.interchange import in_kind, is_table, to_arrow
from distagg.engine.importing import read_dataset
from distagg.errors import InputError, UsageError, unknown

log = logging.getLogger("distagg")
RUNS = "{expert: {query: {item: score}}}"
ACCEPTED = (
    "a Dataset, a pandas or polars frame, an Arrow table, dataset or stream, anything with __arrow_c_stream__, "
    f"a dictionary of runs {RUNS}, or the path of a file"
)
Columns = Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Given:
    """What a user gave: a dataset, and how to answer in kind."""

    dataset: Dataset
    answer: Callable[[pa.Table], Any]


def as_dataset(data: Any, *, columns: Columns = None, labels: Any = None) -> Dataset:
    """A dataset of data of any kind.

    Parameters
    ----------
    data
        A ``Dataset``; a pandas or polars frame, an Arrow table, dataset or stream, or anything with the Arrow PyCapsule
        interface (a DuckDB relation), with the columns of ``Dataset.from_arrow``, or of battles (model_a, model_b,
        winner); a dictionary of runs ``{expert: {query: {item: score}}}``, or of frames ``{expert: frame}``; paths.
    columns
        Our names of columns that the data name otherwise: ``{"site": "item"}``. The names that TREC, PyTerrier,
        ir_datasets, BEIR, MTEB and ranx use are understood without it.
    labels
        Relevance judgements: a frame with the columns query, item and label, a dictionary ``{query: {item: label}}``,
        or the path of a file of qrels.

    >>> as_dataset({"bm25": {"7": {"x": 0.9, "y": 0.7}}}, labels={"7": {"x": 1}}).info()["labels"]
    {'1': 1}
    >>> runs = pa.table({"qid": ["7", "7"], "docno": ["x", "y"], "score": [0.9, 0.7], "run": ["bm25", "bm25"]})
    >>> as_dataset(runs).experts
    ('bm25',)
    """
    return given(data, columns, labels).dataset


def given(data: Any, columns: Columns = None, labels: Any = None) -> Given:
    """The dataset of data of any kind, and the function that answers in kind; the parameters are ``as_dataset``'s."""
    if isinstance(data, Dataset):
        if columns:
            raise UsageError("columns name those of a table, but a Dataset was given, whose columns have their names")
        return Given(data if labels is None else _relabelled(data, as_labels(labels)), _as_is)
    paths = _paths(data)
    judged = None if labels is None else as_labels(labels, columns)
    if paths:
        return Given(read_dataset(paths, columns=columns, qrels=judged), _as_is)
    if isinstance(data, Mapping) and not is_table(data):
        if data and all(is_table(table) for table in data.values()):
            rows = _joined([_named(str(name), table, columns) for name, table in data.items()])
            kind = next(iter(data.values()))
        else:
            rows, kind = runs_table(data), data
    elif is_table(data):
        rows, kind = rows_of(data, columns), data
    else:
        raise UsageError(f"found {_told(data)}, expected {ACCEPTED}")
    if not len(rows):
        raise UsageError("found no rows in the data, expected at least one; check the filter or query that made them")
    dataset = dataset_from_arrow(rows, judgements=judged)
    return Given(dataset, lambda ranking: _answer(ranking, rows, kind))


def rows_of(data: Any, columns: Columns = None) -> pa.Table:
    """The rows of a frame, table or stream under our names: lists, pairs, or battles as pairs."""
    rows = _read(data, lambda names: _found(names, _names_of(names, columns), columns))
    return _pairs_of_battles(rows) if "model_a" in rows.column_names else rows


def _read(data: Any, find: Callable[[Sequence[str]], dict[str, str]]) -> pa.Table:
    """The columns that ``find`` finds in a table, under our names."""
    found: dict[str, str] = {}

    def choose(names: Sequence[str]) -> Sequence[str]:
        found.update(find(names))
        return list(found.values())

    table = to_arrow(data, choose).rename_columns(list(found))
    if "rank" in found and counts_from_zero(list(found.values())) and pc.min(table["rank"]).as_py() == 0:
        table = table.set_column(table.column_names.index("rank"), "rank", pc.add(table["rank"], 1))
    return table


def _names_of(names: Sequence[str], columns: Columns) -> Names:
    ours = {*names, *(columns or {}).values()}
    if {"model_a", "model_b"} <= ours:
        return BATTLE_NAMES
    return PAIR_NAMES if {"winner", "loser"} & ours else LIST_NAMES


def _found(names: Sequence[str], wanted: Names, columns: Columns) -> dict[str, str]:
    """The columns to read, by our names; an unknown one is an error, except in logs of battles."""
    for name in columns or {}:
        if name not in names:
            raise unknown("column of the table", name, names)
    found = known_columns(names, wanted, columns)
    others = not_understood(names, found)
    if others and wanted is BATTLE_NAMES:
        log.info("columns that are not read: %s", ", ".join(others))
    elif others:
        raise UsageError(
            f"{unknown('column of the table', others[0], wanted)}; drop it, "
            f"or say what it is: columns={{{others[0]!r}: ...}}"
        )
    missing = [
        name for name in ("model_a", "model_b", "winner", "loser", "item") if name in wanted and name not in found
    ]
    if wanted is LIST_NAMES and "expert" not in found:
        missing.append("expert (for one table by expert, give a dictionary {expert: table})")
    if wanted is LIST_NAMES and not {"rank", "score"} & set(found):
        missing.append("rank or score")
    if missing:
        raise UsageError(
            f"the table has no column {', '.join(missing)}; it has {', '.join(names) or 'none'}; "
            "name columns that are called otherwise: columns={'site': 'item'}"
        )
    return found


def _named(expert: str, table: Any, columns: Columns) -> pa.Table:
    """One expert's table, with a column that names the expert."""
    wanted = {name: others for name, others in LIST_NAMES.items() if name != "expert"}
    rows = _read(table, lambda names: _found(names, wanted, columns))
    if not {"rank", "score"} & set(rows.column_names):
        raise UsageError(f"the table of {expert} has no column rank or score; it has {', '.join(rows.column_names)}")
    return rows.append_column("expert", as_words([expert]).take(as_arrow(np.zeros(len(rows), np.int8))))


def _pairs_of_battles(battles: pa.Table) -> pa.Table:
    from distagg.sources.pairs import EXPECTED_OUTCOME, battle_result, unknown_outcome

    words = ("model_a", "model_b", "winner")
    names = battles.column_names
    battles = pa.table({n: battles[n].cast(pa.string()) if n in words else battles[n] for n in names})
    bad = unknown_outcome(battles)
    if bad >= 0:
        found = f"winner {battles['winner'][bad].as_py()!r}"
        raise InputError("<table>", line=bad + 1, found=found, expected=EXPECTED_OUTCOME)
    result = dict(zip(("winner", "loser", "tie"), battle_result(battles), strict=True))
    return pa.table({**{n: battles[n] for n in names if n not in words}, **result})


def runs_table(runs: Mapping[Any, Any]) -> pa.Table:
    """Runs ``{expert: {query: {item: score}}}`` as a long table.

    >>> runs_table({"bm25": {"7": {"x": 0.9}}}).to_pylist()
    [{'expert': 'bm25', 'query': '7', 'item': 'x', 'score': 0.9}]
    """
    for expert, run in runs.items():
        if not isinstance(run, Mapping):
            raise UsageError(
                f"found {_told(run)} under {expert!r}, expected runs {RUNS}; make columns a table: pyarrow.table(data)"
            )
    tables = [scores_table(run, f"[{expert!r}]") for expert, run in runs.items()]
    if not tables:
        raise UsageError(f"found an empty dictionary, expected runs {RUNS}")
    sizes = as_arrow(np.repeat(np.arange(len(tables)), [len(table) for table in tables]))
    experts = as_words([str(expert) for expert in runs]).take(sizes)
    return _joined(tables).add_column(0, "expert", experts)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise UsageError(
            f"experts' ids or values have different types ({error}); make all ids text, or all whole numbers"
        ) from error


def scores_table(run: Mapping[Any, Any], where: str = "", value: str = "score") -> pa.Table:
    """A run ``{query: {item: score}}`` as a long table; ids are text, or whole numbers if all of them are."""
    items: list[Any] = []
    values: list[Any] = []
    for query, scores in run.items():
        if not isinstance(scores, Mapping):
            one = "" if where else f"{{query: {{item: {value}}}}}"
            raise UsageError(
                f"found {_told(scores)} at {where}[{query!r}], expected "
                + (one or f"items with their scores, in runs {RUNS}; of a single run, name its expert: {{'bm25': run}}")
            )
        items += scores
        values += scores.values()
    queries = as_arrow(np.repeat(np.arange(len(run)), [len(scores) for scores in run.values()]))
    return pa.table(
        {
            "query": _ids(list(run), where).take(queries),
            "item": _ids(items, where),
            value: as_arrow(_numbers(values, where, value)),
        }
    )


def _ids(ids: Sequence[Any], where: str) -> pa.Array:
    if ids and all(isinstance(name, int | np.integer) for name in ids):
        return as_arrow(np.array(ids, dtype=np.int64))
    bad = next((name for name in ids if not isinstance(name, str)), None)
    if bad is not None:
        raise UsageError(f"found the id {bad!r} in the run{where}, expected text, or whole numbers throughout")
    return as_words(ids)


def _numbers(values: Sequence[Any], where: str, what: str) -> np.ndarray:
    try:
        return np.array(values, dtype=np.float64).reshape(len(values))
    except (TypeError, ValueError):
        bad = next((v for v in values if isinstance(v, str) or not np.isscalar(v)), values[0])
        raise UsageError(f"found {bad!r} as a {what} in the run{where}, expected a number") from None


def as_labels(labels: Any, columns: Columns = None) -> pa.Table:
    """Labels of any kind as a table with the columns query, item, label; the kinds are those of ``as_dataset``.

    >>> as_labels({"7": {"x": 1}}).to_pylist()
    [{'query': '7', 'item': 'x', 'label': 1.0}]
    """
    paths = _paths(labels)
    if paths:
        from distagg.sources.qrels import read_qrels  # late: files only

        return read_qrels([Path(path) for path in paths], columns)
    if is_table(labels):
        return _read(labels, lambda names: _label_columns(names, columns))
    if isinstance(labels, Mapping):
        return scores_table(labels, value="label")
    raise UsageError(
        f"found {_told(labels)} as labels, expected a frame or table with the columns query, item and label, "
        "a dictionary {query: {item: label}}, or the path of a file of qrels"
    )


def _label_columns(names: Sequence[str], columns: Columns) -> dict[str, str]:
    found = label_columns(names, columns)
    if not {"item", "label"} <= set(found):
        raise UsageError(f"labels have the columns {', '.join(names) or 'none'}, expected query, item and label")
    return found


def _relabelled(dataset: Dataset, labels: pa.Table) -> Dataset:
    """A copy in memory with these labels only."""
    rows = dataset.to_arrow()
    return dataset_from_arrow(rows.drop_columns([n for n in ("label",) if n in rows.column_names]), judgements=labels)


def _answer(ranking: pa.Table, rows: pa.Table, data: Any) -> Any:
    """The ranking in the kind of the data, with ids that are numbers where they were numbers."""
    for name, column in (("query", "query"), ("item", "item" if "item" in rows.column_names else "winner")):
        if column in rows.column_names and pa.types.is_integer(rows.schema.field(column).type):
            at = ranking.column_names.index(name)
            ranking = ranking.set_column(at, name, ranking[name].cast(rows.schema.field(column).type))
    if not isinstance(data, Mapping):
        return in_kind(ranking, data)
    answer: dict[Any, dict[Any, float]] = {query: {} for run in data.values() for query in run}
    columns = (ranking[name].to_pylist() for name in ("query", "item", "score"))
    for query, item, score in zip(*columns, strict=True):
        answer[query][item] = score
    return answer


def _as_is(ranking: pa.Table) -> pa.Table:
    return ranking


def _paths(data: Any) -> list[str]:
    paths = data if isinstance(data, list | tuple) else [data]
    return [os.fspath(path) for path in paths] if all(isinstance(path, str | os.PathLike) for path in paths) else []


def _told(data: Any) -> str:
    return "None" if data is None else f"a {type(data).__name__}"
