"""Convert frames, tables, dictionaries and files to datasets, and rankings back to the type of the input."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distagg.arrow import as_scalar, repeated_word
from distagg.columns import (
    BATTLE_NAMES,
    LIST_NAMES,
    PAIR_NAMES,
    RANKING_NAMES,
    Names,
    counts_from_zero,
    is_battles,
    known_columns,
    label_columns,
    not_understood,
)
from distagg.covariates import Covariate, Levels, Term, find_all, is_category, terms_of
from distagg.dataset.dataset import Dataset
from distagg.dataset.frames import dataset_from_arrow
from distagg.dataset.interchange import (
    RUNS,
    described,
    in_kind,
    is_dask,
    is_table,
    joined,
    runs_table,
    scores_table,
    to_arrow,
)
from distagg.engine.importing import read_dataset
from distagg.errors import InputError, UsageError, unknown
from distagg.storage.paths import place
from distagg.types import Bools

log = logging.getLogger("distagg")
ACCEPTED = (
    "a Dataset, a pandas or polars frame, an Arrow table, dataset or stream, anything with __arrow_c_stream__, "
    f"a dictionary of runs {RUNS}, or the path of a file"
)
Columns = Mapping[str, str] | None
_LABELS = {"query", "item", "label", "score"}  # the columns of a table of labels


@dataclass(frozen=True, slots=True)
class Given:
    """The user's data as a dataset, and the function that returns a ranking in the type of the input."""

    dataset: Dataset
    answer: Callable[[pa.Table], Any]
    kinds: dict[str, pa.DataType] = field(default_factory=dict)  # of ids that were whole numbers, by our names


def as_dataset(
    data: Any, *, columns: Columns = None, labels: Any = None, covariates: str = "", client: Any = None
) -> Dataset:
    """Convert data of any supported type to a dataset.

    Parameters
    ----------
    data
        A ``Dataset``; a pandas or polars frame, an Arrow table, dataset or stream, or anything with the Arrow PyCapsule
        interface (a DuckDB relation), with the columns of ``Dataset.from_arrow``, or of battles (model_a, model_b,
        winner, or left, right, winner); a dictionary of runs ``{expert: {query: {item: score}}}``, or of frames
        ``{expert: frame}``; paths.
    columns
        distagg's names for columns that have other names in the data: ``{"site": "item"}``. The names that TREC,
        PyTerrier, ir_datasets, BEIR, MTEB and ranx use are understood without it.
    labels
        Relevance judgements: a frame with the columns query, item and label, a dictionary ``{query: {item: label}}``,
        or the path of a file of qrels.
    covariates
        Columns of pairs to keep for fits, as ``bradley_terry`` takes them: ``"length_a-length_b,position"``.
    client
        The ``distributed.Client`` on whose workers a Dask collection stays; by default the current one. Without any, it
        is computed in this process.

    >>> as_dataset({"bm25": {"7": {"x": 0.9, "y": 0.7}}}, labels={"7": {"x": 1}}).info()["labels"]
    {'1': 1}
    >>> runs = pa.table({"qid": ["7", "7"], "docno": ["x", "y"], "score": [0.9, 0.7], "run": ["bm25", "bm25"]})
    >>> as_dataset(runs).experts
    ('bm25',)
    """
    return given(data, columns, labels, covariates, client).dataset


def given(data: Any, columns: Columns = None, labels: Any = None, covariates: str = "", client: Any = None) -> Given:
    """Like ``as_dataset``, with the function that returns a ranking in the type of the data.

    A Dask collection stays on the workers of ``client``, by default of the current one, if there is one.
    """
    if isinstance(data, Dataset):
        if columns:
            raise UsageError("found columns with a Dataset, expected them with a table only; omit columns")
        return Given(data if labels is None else _relabelled(data, as_labels(labels)), _as_is)
    paths = _paths(data)
    if paths:
        qrels = None if labels is None else _paths(labels) or as_labels(labels, columns)
        return Given(read_dataset(paths, columns=columns, qrels=qrels, covariates=covariates or None), _as_is)
    if is_dask(data) and not covariates:
        from distagg.engine.collections import current_client, read_dask

        client = client if client is not None else current_client()
        if client is not None:
            dataset, schema = read_dask(data, columns, labels, client)
            return Given(dataset, _as_is, _whole_numbers(schema))
    judged = None if labels is None else as_labels(labels, columns)
    kept: tuple[Covariate, ...] = ()
    if isinstance(data, Mapping) and not is_table(data):
        if data and all(is_table(table) for table in data.values()):
            rows = joined([_named(str(name), table, columns) for name, table in data.items()])
            kind = next(iter(data.values()))
        else:
            rows, kind = runs_table(data), data
    elif is_table(data):
        (rows, kept), kind = rows_of(data, columns, all_there=labels is None, terms=terms_of(covariates)), data
    else:
        raise UsageError(f"found {described(data)}, expected {ACCEPTED}")
    if not len(rows):
        raise UsageError("found no rows in the data, expected at least one; check the filter or query that made them")
    schema = rows.schema  # all that the answer needs: the rows need not stay in memory
    dataset = dataset_from_arrow(rows, judgements=judged, covariates=kept)
    return Given(dataset, lambda ranking: _answer(ranking, schema, kind))


def rows_of(
    data: Any, columns: Columns = None, *, all_there: bool = True, terms: Sequence[Term] = ()
) -> tuple[pa.Table, tuple[Covariate, ...]]:
    """The rows of a frame, table or stream under our names: lists, pairs, or battles as pairs; and their covariates.

    A column that the caller names but the table lacks is an error if ``all_there``; otherwise it may be in the labels.
    """
    covariates: tuple[Covariate, ...] = ()

    def choose(names: Sequence[str]) -> dict[str, str]:
        nonlocal covariates
        wanted = _names_of(names, columns)
        covariates = find_all(terms, names, battles=wanted is BATTLE_NAMES, where="the table")
        sources = dict.fromkeys(name for covariate in covariates for name in covariate.source)
        others = [name for name in names if name not in sources]
        return {**_found(others, wanted, columns, all_there), **{name: name for name in sources}}

    rows = _read(data, choose)
    battles = "model_a" in rows.column_names
    result = _pairs_of_battles(rows) if battles else rows
    if not covariates:
        return result, ()
    levels = Levels([_checked(rows, covariate) for covariate in covariates])
    a_won = _won_by_a(rows) if battles else np.ones(len(rows), dtype=np.bool_)
    seen = levels.seen_from_winner({name: rows[name] for each in covariates for name in each.source}, a_won)
    result = result.drop_columns([name for each in covariates for name in each.source])
    for name, values in seen.items():
        result = result.append_column(name, values)
    return result, levels.covariates


def _won_by_a(battles: pa.Table) -> Bools:
    """Whether side a has the winner's place in each battle."""
    from distagg.sources.observed_pairs import lost_by_a

    return ~lost_by_a(pa.table({"winner": battles["winner"].cast(pa.string())}))


def _checked(rows: pa.Table, covariate: Covariate) -> Covariate:
    """The covariate, a category if a column is text; an empty cell, or text among numbers, is refused."""
    for name in covariate.source:
        missing = pc.index(pc.is_null(rows[name], nan_is_null=True), as_scalar(True)).as_py()
        if missing >= 0:
            raise InputError("<table>", line=missing + 1, found=f"an empty {name}", expected="a value in every row")
    texts = [is_category(rows[name].type) for name in covariate.source]
    if any(texts) and not all(texts) and not covariate.category:
        raise UsageError(f"covariate {covariate.name}: found text and numbers, expected the same kind in both columns")
    return replace(covariate, category=covariate.category or any(texts))


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
    if is_battles(names, columns):
        return BATTLE_NAMES
    ours = {*(name.lower() for name in names), *(columns or {}).values()}
    return PAIR_NAMES if {"winner", "loser"} & ours else LIST_NAMES


def _found(names: Sequence[str], wanted: Names, columns: Columns, all_there: bool = False) -> dict[str, str]:
    """The columns to read, by our names; an unknown one is an error, except in logs of battles."""
    for name in columns or {}:
        if all_there and name not in names:
            raise unknown("column of the table", name, names)
    found = known_columns(names, wanted, columns)
    others = not_understood(names, found, columns)
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
    if wanted is LIST_NAMES and not {"rank", "score", "rating"} & set(found):
        missing.append("rank or score")
    if missing:
        raise UsageError(
            f"the table has no column {', '.join(missing)}; it has {', '.join(names) or 'none'}; "
            "if a column has another name, give it: columns={'site': 'item'}"
        )
    return found


def _named(expert: str, table: Any, columns: Columns) -> pa.Table:
    """One expert's table, with a column that names the expert."""
    wanted = {name: others for name, others in LIST_NAMES.items() if name != "expert"}
    rows = _read(table, lambda names: _found(names, wanted, columns))
    if not {"rank", "score", "rating"} & set(rows.column_names):
        raise UsageError(f"the table of {expert} has no column rank or score; it has {', '.join(rows.column_names)}")
    return rows.append_column("expert", repeated_word(expert, len(rows)))


def _pairs_of_battles(battles: pa.Table) -> pa.Table:
    from distagg.sources.observed_pairs import EXPECTED_OUTCOME, battle_result, unknown_outcome

    words = ("model_a", "model_b", "winner")
    names = battles.column_names
    battles = pa.table({n: battles[n].cast(pa.string()) if n in words else battles[n] for n in names})
    bad = unknown_outcome(battles)
    if bad >= 0:
        found = f"winner {battles['winner'][bad].as_py()!r}"
        raise InputError("<table>", line=bad + 1, found=found, expected=EXPECTED_OUTCOME)
    result = dict(zip(("winner", "loser", "tie"), battle_result(battles), strict=True))
    return pa.table({**{n: battles[n] for n in names if n not in words}, **result})


def as_labels(labels: Any, columns: Columns = None, *, fractions: bool = False) -> pa.Table:
    """Labels of any type that ``as_dataset`` takes, as a table with the columns query, item and label.

    With ``fractions``, labels in files may be any numbers. Labels in tables are checked by the caller.

    >>> as_labels({"7": {"x": 1}}).to_pylist()
    [{'query': '7', 'item': 'x', 'label': 1.0}]
    """
    paths = _paths(labels)
    if paths:
        from distagg.sources.trec import read_qrels  # late: files only

        return read_qrels([Path(path) for path in paths], columns, fractions=fractions)
    if is_table(labels):
        return _read(labels, lambda names: _label_columns(names, columns))
    if isinstance(labels, Mapping):
        return scores_table(labels, value="label")
    raise UsageError(
        f"found {described(labels)} as labels, expected a frame or table with the columns query, item and label, "
        "a dictionary {query: {item: label}}, or the path of a file of qrels"
    )


def _label_columns(names: Sequence[str], columns: Columns) -> dict[str, str]:
    found = label_columns(names, columns)
    if not {"item", "label"} <= set(found):
        raise UsageError(f"labels have the columns {', '.join(names) or 'none'}, expected query, item and label")
    return found


def as_rankings(rankings: Any, columns: Columns = None) -> pa.Table:
    """Rankings of any supported type as a table with the columns query, item, and rank or score.

    >>> as_rankings({"7": {"x": 0.9}}).to_pylist()
    [{'query': '7', 'item': 'x', 'score': 0.9}]
    """
    if isinstance(rankings, str | os.PathLike):
        from distagg.engine.read_rankings import read_rankings

        return read_rankings(place(os.fspath(rankings)), columns)
    if is_table(rankings):
        table = _read(rankings, lambda names: known_columns(names, RANKING_NAMES, columns))
    elif isinstance(rankings, Mapping):
        table = scores_table(rankings)
    else:
        raise UsageError(
            f"found {described(rankings)} as rankings, expected a frame or table with the columns query, item, "
            "and rank or score, a run {query: {item: score}}, or a path"
        )
    text = [name for name in ("query", "item") if name in table.column_names]
    return table.cast(pa.schema([f.with_type(pa.string()) if f.name in text else f for f in table.schema]))


def labelled(data: Any, columns: Columns = None) -> Dataset | pa.Table:
    """A table of labels (query, item, label) if the data hold nothing but labels, otherwise a dataset of the data.

    >>> labelled({"7": {"x": 1}}).column_names, labelled({"bm25": {"7": {"x": 0.9}}}).experts
    (['query', 'item', 'label'], ('bm25',))
    """
    if is_dask(data):
        from distagg.engine.collections import current_client

        names = [str(name) for name in getattr(data, "columns", ())]
        if current_client() is not None and not set(known_columns(names, LIST_NAMES, columns)) <= _LABELS:
            return as_dataset(data, columns=columns)
    if is_table(data):  # read once, because it may be a stream
        data = to_arrow(data, lambda names: list(known_columns(names, LIST_NAMES, columns).values()))
    return (
        as_labels(data, columns, fractions=True) if _only_labels(data, columns) else as_dataset(data, columns=columns)
    )


def _only_labels(data: Any, columns: Columns) -> bool:
    if isinstance(data, pa.Table):
        return set(known_columns(data.column_names, LIST_NAMES, columns)) <= _LABELS
    if isinstance(data, Mapping):
        inner = next((value for run in data.values() if isinstance(run, Mapping) for value in run.values()), None)
        return not isinstance(inner, Mapping) and not any(is_table(table) for table in data.values())
    paths = _paths(data)
    if not paths or any(place(path).is_dir() for path in paths):
        return False
    from distagg.sources.detect import QRELS, kind_of_file

    return all(kind_of_file(Path(path), columns) == QRELS for path in paths)


def _relabelled(dataset: Dataset, labels: pa.Table) -> Dataset:
    """A copy of the dataset in memory, with these labels instead of its own."""
    rows = dataset.to_arrow()
    rows = rows.drop_columns([n for n in ("label",) if n in rows.column_names])
    return dataset_from_arrow(rows, judgements=labels, covariates=dataset.manifest.covariates)


def _whole_numbers(given_as: pa.Schema) -> dict[str, pa.DataType]:
    """The types of ids that are whole numbers, by the names that a ranking has for them."""
    sources = {"query": "query", "item": "item" if "item" in given_as.names else "winner"}
    kinds = {name: given_as.field(source).type for name, source in sources.items() if source in given_as.names}
    return {name: kind for name, kind in kinds.items() if pa.types.is_integer(kind)}


def _answer(ranking: pa.Table, given_as: pa.Schema, data: Any) -> Any:
    """The ranking in the type of the data; ids that were numbers are numbers again."""
    for name, kind in _whole_numbers(given_as).items():
        ranking = ranking.set_column(ranking.column_names.index(name), name, ranking[name].cast(kind))
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
