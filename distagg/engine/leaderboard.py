"""Boards: battles to strengths with intervals of scores and ranks, groups, chances to win, and the comparison graph.

The fit runs where the data are (``models.pairwise.standings`` on each chunk, or on the counts of a split query). Its
numbers become a board here, on the scale that people see.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from distagg.arrow import as_arrow, as_words, dtype_of
from distagg.dataset.chunk import Chunk
from distagg.dataset.dataset import Dataset
from distagg.dataset.interchange import in_kind, is_table
from distagg.engine.data import Columns, given
from distagg.engine.rank import coefficients_of, ready
from distagg.engine.rank_options import Shown
from distagg.engine.runner import Runner, Work, as_runner
from distagg.errors import UsageError, unknown
from distagg.models import model_named
from distagg.models.base import Known, not_converged
from distagg.models.outcome import STATUS
from distagg.models.pairwise.adjusted import COEFFICIENT_COLUMNS, fit_query
from distagg.models.pairwise.connection import thinnest_link
from distagg.models.pairwise.counts import Counts, joined, merged
from distagg.models.pairwise.model import UNITS, BradleyTerry, read_anchor
from distagg.models.pairwise.solver import Pairwise
from distagg.models.pairwise.standings import (
    Ending,
    Fitted,
    Judged,
    Standings,
    adjusted_fit,
    counted_fits,
    standings,
)
from distagg.models.rounds import Gathered
from distagg.rankings.ordering import order_items
from distagg.times import SECOND, time_text
from distagg.types import INDEX

log = logging.getLogger("distagg")

Payload = tuple[Pairwise, Known, Known, Shown, str | None, int]
MOST_QUERIES = 100
MOST_PERIODS = 200
BY_PERIOD = ["item", "rank", "score", "low", "high", "battles"]
TABLE = pa.schema(
    [
        ("query", pa.string()),
        ("rank", pa.int32()),
        ("item", pa.string()),
        ("score", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("rank_low", pa.int32()),
        ("rank_high", pa.int32()),
        ("group", pa.int32()),
        ("battles", pa.float64()),
        ("won", pa.float64()),
        ("lost", pa.float64()),
        ("tied", pa.float64()),
        ("win_rate", pa.float64()),
        ("uncertainty", pa.float64()),
        ("status", pa.string()),
        ("component", pa.int32()),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """A leaderboard of one query.

    ``query`` is its name. ``table`` has a row for each item, the best first: rank, item, score, low and high (an
    interval of the score), rank_low and rank_high (an interval of the rank, for all items at once), group, battles,
    won, lost, tied, win_rate (a tie is half a win), uncertainty (the standard error of the score), status, component.
    ``matrix`` has the chance of each item (row) to beat each other one (column), a tie counting half; it is empty
    between components. ``groups`` holds the items of each group, in which no two can be told apart: as many items are
    clearly better than each of them. ``links`` describes the comparison graph: components, battles of pairs, the
    thinnest link. ``about`` holds the settings and how the fit ended.
    """

    query: str
    table: Any
    matrix: Any
    groups: tuple[tuple[Any, ...], ...]
    links: dict[str, Any]
    about: dict[str, Any]

    def chance(self, item: Any, other: Any) -> float:
        """The chance that one item beats another, a tie counting half."""
        matrix = self.matrix if isinstance(self.matrix, pa.Table) else pa.table(self.matrix)
        names = [str(name) for name in matrix["item"].to_pylist()]
        for name in (item, other):
            if str(name) not in names:
                raise unknown("item", str(name), names)
        value = matrix[str(other)][names.index(str(item))].as_py()
        return math.nan if value is None else float(value)


def board(
    data: Any,
    *,
    query: str | None = None,
    model: str = "bradley_terry",
    min_battles: int = 0,
    since: str | None = None,
    until: str | None = None,
    columns: Columns = None,
    seed: int | None = None,
    runner: Runner | None = None,
    **settings: Any,
) -> Board:
    """A leaderboard of battles, in one line: strengths with intervals of scores and ranks, groups, chances to win.

    Parameters
    ----------
    data
        Battles or pairs: a frame, an Arrow table, paths of files, or a ``Dataset``, as ``rank`` takes them.
    query
        The query whose board is wanted, where the data have several.
    model
        ``bradley_terry`` or ``thurstone``.
    min_battles
        The number of battles that an item must have to be on the board; all items take part in the fit.
    since
        Take only battles at or after this time: ``2026-03-31``.
    until
        Take only battles before this time.
    columns
        Our names of columns that a table names otherwise, ``{"left": "model_a"}``.
    seed
        Seed of the draws behind intervals of ranks and of the bootstrap, default 0.
    runner
        Where to run: None runs in this process; see ``rank``.
    **settings
        The parameters of the model: ``scale`` (default elo for bradley_terry), ``anchor="gpt-4:1200"``, ``level``,
        ``errors`` (default standard, or bootstrap), ``ties``, ``prior``, ``half_life``, ``covariates``.

    Returns
    -------
    Board
        ``table`` and ``matrix`` in the kind of frame that the data came in, ``groups``, ``links``, ``about``.

    >>> battles = pa.table({"winner": list("xxxxxyzy"), "loser": list("yyyzzzxx")})
    >>> result = board(battles, anchor="y:1000")
    >>> result.table.select(["rank", "item", "battles", "rank_low", "rank_high"]).to_pylist()[0]
    {'rank': 1, 'item': 'x', 'battles': 7.0, 'rank_low': 1, 'rank_high': 3}
    >>> result.groups
    (('x', 'y', 'z'),)
    """
    made_model = board_model(model, settings, seed)
    what = given(data, columns, None, getattr(made_model, "covariates", ""))
    dataset = what.dataset
    if since is not None or until is not None:
        dataset = dataset.select(since=since, until=until)
    made = boards(made_model, dataset, query=query, min_battles=min_battles, runner=runner)
    refuse_empty(made, min_battles)
    if len(made) > 1:
        names = ", ".join(each.query for each in made[:5])
        raise UsageError(f"found {len(made):,} queries ({names}, ...), expected one; choose it with query=NAME")
    only = made[0]
    if not is_table(data):
        return only
    table, items = what.answer(only.table), only.table["item"].to_pylist()
    answered = table["item"].to_pylist() if isinstance(table, pa.Table) else list(table["item"])
    named = dict(zip(items, answered, strict=True))
    groups = tuple(tuple(named[item] for item in group) for group in only.groups)
    return replace(only, table=table, matrix=in_kind(only.matrix, data), groups=groups)


def board_model(name: str, settings: dict[str, Any], seed: int | None) -> Pairwise:
    """The model of a board: with standard errors and on the Elo scale unless the settings say otherwise."""
    model = model_named(name, settings, seed=seed or 0)
    if not isinstance(model, Pairwise):
        raise UsageError(f"a board needs joint errors of all scores: found {name}, expected bradley_terry or thurstone")
    given_names = {key.lower() for key in settings}
    if "errors" not in given_names:
        model = replace(model, errors="standard")
    if model.errors == "none":
        raise UsageError("a board has intervals: found errors=none, expected errors=standard or bootstrap")
    if isinstance(model, BradleyTerry) and "scale" not in given_names:
        model = replace(model, scale="elo")
    return model


def boards(
    model: Pairwise,
    dataset: Dataset,
    *,
    query: str | None = None,
    min_battles: int = 0,
    runner: Runner | None = None,
) -> list[Board]:
    """A board for every query of a dataset of pairs, or for one of them."""
    if dataset.manifest.kind != "pairs":
        raise UsageError("a board is made of battles or pairs, found lists; 'distagg rank plackett_luce' ranks lists")
    if query is None and dataset.manifest.queries > MOST_QUERIES:
        raise UsageError(
            f"found {dataset.manifest.queries:,} queries, expected at most {MOST_QUERIES}; choose one (--query), or "
            f" rank all of them: distagg rank {model.name}"
        )
    runner = as_runner(runner)
    known, refs, shown = ready(model, {}, dataset, runner, shown=Shown(support=True))
    half = known
    if model.ties == "rao_kupper" and isinstance(known, Gathered):  # there a tie counts twice
        half = ready(replace(model, ties="half"), {}, dataset, runner)[0]
    work = Work(_board_task, (model, known, half, shown, query, max(min_battles, 1)), ids=True)
    made = [each for part in runner.map(work, refs) for each in part]
    if query is not None and not made:
        raise UsageError(f"unknown query '{query}'; 'distagg info' tells what the data hold")
    for each in made:
        if each.about["left_out"]:
            log.warning(
                "left out %d of %d items with fewer than %d battles",
                each.about["left_out"],
                each.about["left_out"] + each.table.num_rows,
                max(min_battles, 1),
            )
    unfinished = [each.query for each in made if not each.about["fit"]["converged"]]
    if unfinished:
        not_converged(f"{model.name}: {len(unfinished)} boards not converged ({unfinished[0]}); {model.remedy}")
    return made


def _board_task(chunk: Chunk, index: int, payload: Payload) -> list[Board]:
    """The boards of a chunk's queries."""
    model, known, half, shown, query, least = payload
    support = shown.items_of(chunk, index)
    if query is not None:
        wanted = np.array([str(name) == query for name in chunk.query_ids], dtype=np.bool_)
        if not wanted.any():
            return []
        rows = wanted[chunk.item_query()]
        chunk, support = chunk.select(wanted), {name: column[rows] for name, column in support.items()}
    linked, fits = _fits(model, chunk, known)
    if model.ties == "rao_kupper":
        linked = _counts(replace(model, ties="half"), chunk, half)
    anchor = np.array([_anchor(model, chunk, q, support["comparisons"]) for q in range(chunk.n_queries)], dtype=INDEX)
    kept = support["comparisons"] >= least
    found = standings(model, chunk, fits, Judged(kept, anchor))
    return [_made(model, chunk, q, found[q], kept, support, linked) for q in range(chunk.n_queries)]


def _fits(model: Pairwise, chunk: Chunk, known: Known) -> tuple[Counts, list[tuple[Fitted, Ending]]]:
    """Pair counts of a chunk, and the fit of each of its queries."""
    split = isinstance(known, Gathered)
    if not isinstance(model, BradleyTerry) or not model.covariates:
        counts = _counts(model, chunk, known)
        return counts, counted_fits(model, chunk, counts, split=split)
    queries = [chunk.select(np.arange(chunk.n_queries) == q) for q in range(chunk.n_queries)]
    adjusted = [known.statistics if isinstance(known, Gathered) else fit_query(model, each, {}) for each in queries]
    fits = [adjusted_fit(model, query, fit) for query, fit in zip(queries, adjusted, strict=True)]
    return joined([fit.problem.counts for fit in adjusted]), fits


def _counts(model: Pairwise, chunk: Chunk, known: Known) -> Counts:
    if isinstance(known, Gathered):
        return merged(chunk.n_items, [known.statistics.pairs])
    return model.counting(chunk).count(chunk)


def _anchor(model: Pairwise, chunk: Chunk, q: int, battles: np.ndarray) -> int:
    """The position of the anchor among the items of a query, -1 without one; one that did not take part is refused."""
    name, _ = read_anchor(getattr(model, "anchor", ""))
    if not name:
        return -1
    names = chunk.item_ids[int(chunk.item_offsets[q]) : int(chunk.item_offsets[q + 1])].to_pylist()
    if name not in names:
        raise unknown(f"anchor of query {chunk.query_ids[q]}:", name, names[:20])
    at = names.index(name)
    if not battles[int(chunk.item_offsets[q]) + at]:
        raise UsageError(f"anchor {name} has no battles among those selected; choose another anchor")
    return int(at)


def _made(
    model: Pairwise,
    chunk: Chunk,
    q: int,
    found: Standings,
    kept: np.ndarray,
    support: dict[str, np.ndarray],
    counts: Counts,
) -> Board:
    """The board of one query: rows in the order of scores, on the scale that people see."""
    first, end = int(chunk.item_offsets[q]), int(chunk.item_offsets[q + 1])
    query, names = str(chunk.query_ids[q]), chunk.item_ids[first:end]
    unit, shift = 1.0, 0.0
    if isinstance(model, BradleyTerry):
        unit = UNITS[model.scale]
        shift = model.shift(query, names, unit * found.score)
    order = order_items(np.array([0, end - first]), found.score)
    rows = order[kept[first:end][order]]
    battles, won, lost = (support[name][first:end][rows] for name in ("comparisons", "won", "lost"))
    bounds = np.unique(found.rank_low[rows])
    columns: dict[str, Any] = {
        "query": as_words([query] * len(rows)),
        "rank": np.arange(1, len(rows) + 1),
        "item": names.take(as_arrow(rows)),
        "score": unit * found.score[rows] + shift,
        "low": unit * found.low[rows] + shift,
        "high": unit * found.high[rows] + shift,
        "rank_low": found.rank_low[rows],
        "rank_high": found.rank_high[rows],
        "group": np.searchsorted(bounds, found.rank_low[rows]) + 1,
        "battles": battles,
        "won": won,
        "lost": lost,
        "tied": battles - won - lost,
        "win_rate": (won + 0.5 * (battles - won - lost)) / np.maximum(battles, np.finfo(float).tiny),
        "uncertainty": unit * found.deviation[rows],
        "status": as_words(STATUS).take(as_arrow(found.status[rows].astype(np.int64))),
        "component": found.component[rows],
    }
    arrays = [
        column if isinstance(column, pa.Array) else as_arrow(column.astype(dtype_of(field.type)))
        for field, column in zip(TABLE, columns.values(), strict=True)
    ]
    table = pa.Table.from_arrays(arrays, schema=TABLE)
    items = table["item"].to_pylist()
    groups = tuple(
        tuple(item for item, group in zip(items, table["group"].to_pylist(), strict=True) if group == number)
        for number in range(1, len(bounds) + 1)
    )
    chance = found.chance[np.ix_(rows, rows)]
    cells = [pa.array(chance[:, n], from_pandas=True) for n in range(len(rows))]
    matrix = pa.Table.from_arrays([table["item"].combine_chunks(), *cells], names=["item", *items])
    about = {
        "model": model.name,
        "scale": getattr(model, "scale", "plain"),
        "anchor": getattr(model, "anchor", ""),
        "ties": model.ties,
        "prior": model.prior,
        "errors": model.errors,
        "level": model.level,
        "battles": float(support["comparisons"][first:end].sum() / 2),
        "reach": found.reach,
        "left_out": int((~kept[first:end] & (support["comparisons"][first:end] > 0)).sum()),
        "fit": found.fit,
    }
    fits = {"query": [query], **{name: [found.fit[name]] for name in COEFFICIENT_COLUMNS if name in found.fit}}
    about["coefficients"] = coefficients_of(pa.table(fits)).drop_columns(["query"]).to_pylist()
    return Board(query, table, matrix, groups, _links(rows, found, counts, q, items), about)


def _links(rows: np.ndarray, found: Standings, counts: Counts, q: int, items: list[str]) -> dict[str, Any]:
    """The comparison graph of the items on the board: positions are places on it, from 0."""
    offsets = counts.offsets[counts.item_offsets[q] : counts.item_offsets[q + 1] + 1]
    used = slice(int(offsets[0]), int(offsets[-1]))
    place = np.full(len(found.score), -1)
    place[rows] = np.arange(len(rows))
    low = place[np.repeat(np.arange(len(found.score)), np.diff(offsets))]
    high, number = place[counts.other[used]], counts.ahead[used] + counts.behind[used]
    there = (low >= 0) & (high >= 0) & (number > 0)
    low, high, number = low[there], high[there], number[there]
    component = found.component[rows]
    members = [np.flatnonzero(component == part) for part in np.unique(component)]
    members.sort(key=len, reverse=True)
    thinnest = None
    if members and len(members[0]) > 3:
        inside = np.full(len(rows), -1)
        inside[members[0]] = np.arange(len(members[0]))
        own = inside[low] >= 0
        link = thinnest_link(len(members[0]), inside[low[own]], inside[high[own]], number[own])
        if link is not None:
            names = [items[members[0][at]] for at in link.members]
            thinnest = {"items": names, "battles": link.battles, "share": link.share}
    return {
        "components": [[items[at] for at in part] for part in members],
        "pairs": len(number),
        "possible": len(rows) * (len(rows) - 1) // 2,
        "thinnest": thinnest,
        "edges": (low, high, number),
    }


def periods(dataset: Dataset, period: str) -> list[tuple[str, str, str]]:
    """The name, first and next time of every period that the times of a dataset's pairs touch.

    The selection by ``since`` and ``until`` bounds them.
    """
    if dataset.manifest.times is None:
        raise UsageError(f"the data have no times; --by {period} needs battles with a column time")
    first, last = dataset.manifest.times
    if dataset.where.since is not None:
        first = max(first, dataset.where.since)
    if dataset.where.until is not None:
        last = min(last, dataset.where.until - 1)
    result = []
    at = _period_start(datetime.fromtimestamp(first // SECOND, UTC), period)
    while at.timestamp() * SECOND <= last:
        after = _period_start(at + timedelta(days={"year": 370, "month": 32, "week": 7, "day": 1}[period]), period)
        name = {"year": f"{at:%Y}", "month": f"{at:%Y-%m}"}.get(period, f"{at:%Y-%m-%d}")
        begin, end = round(at.timestamp() * SECOND), round(after.timestamp() * SECOND)
        result.append((name, time_text(max(begin, first)), time_text(min(end, last + 1))))
        at = after
        if len(result) > MOST_PERIODS:
            raise UsageError(f"--by {period}: found more than {MOST_PERIODS} periods; choose a longer one, or --since")
    return result


def _period_start(moment: datetime, period: str) -> datetime:
    """The beginning of the period that a moment is in, in UTC; weeks begin on Monday."""
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(month=1, day=1) if period == "year" else day.replace(day=1) if period == "month" else day


def boards_by(
    model: Pairwise, dataset: Dataset, period: str, *, query: str, min_battles: int = 0, runner: Runner | None = None
) -> list[tuple[str, Board]]:
    """The board of every period, from its own battles alone; periods without battles have none."""
    result = []
    for name, since, until in periods(dataset, period):
        part = dataset.select(since=since, until=until)
        made = boards(model, part, query=query, min_battles=min_battles, runner=runner)
        result += [(name, each) for each in made if each.table.num_rows]
    return result


def refuse_empty(made: Sequence[Board], min_battles: int) -> None:
    """Refuse boards without a single item."""
    if not any(each.table.num_rows for each in made):
        raise UsageError(f"no item has {max(min_battles, 1):,} battles; ask for fewer (--min-battles)")


def as_json(made: Sequence[Board], by: Sequence[tuple[str, Board]] = ()) -> dict[str, Any]:
    """Boards as plain values: settings, rows, groups, the comparison graph, and scores by period."""
    return {
        "boards": [
            {
                "query": each.query,
                "items": each.table.drop_columns(["query"]).to_pylist(),
                "groups": [list(group) for group in each.groups],
                "links": {name: value for name, value in each.links.items() if name != "edges"},
                "about": each.about,
            }
            for each in made
        ],
        "periods": [
            {
                "period": name,
                "items": each.table.select(["item", "rank", "score", "low", "high", "battles"]).to_pylist(),
            }
            for name, each in by
        ],
    }
