"""The names of columns: distagg's own, and those that other tools use for the same things.

The other names are those of TREC (topic, run, tag), PyTerrier (qid, docno), ir_datasets and ir_measures (query_id,
doc_id, relevance), BEIR and MTEB (query-id, corpus-id), ranx (q_id, doc_id), trectools (docid, system) and MovieLens
(userId, movieId). Upper and lower case are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from distagg.errors import UsageError, unknown

_VOTERS = ("judge", "annotator", "worker", "user")
_SYSTEMS = ("user_id", "userid", "system", "run", "run_id", "tag", "retriever", "ranker", "engine", "rater", "voter")
_QUERY = ("qid", "query_id", "query-id", "queryid", "q_id", "topic", "topic_id")
_ITEM = (
    "docno",
    "doc_id",
    "doc-id",
    "docid",
    "corpus_id",
    "corpus-id",
    "item_id",
    "itemid",
    "movie_id",
    "movieid",
    "doc",
)
_RANK = ("position", "pos", "place")
_LABEL = ("relevance", "rel")

# Each kind of table: our names of its columns, each with the other names that are understood.
Names = Mapping[str, tuple[str, ...]]
LIST_NAMES: Names = {
    "query": _QUERY,
    "expert": (
        *_VOTERS,
        "user_id",
        "userid",
        "system",
        "run",
        "run_id",
        "tag",
        "retriever",
        "ranker",
        "engine",
        "rater",
        "voter",
    ),
    "item": _ITEM,
    "rank": _RANK,
    "score": (),
    "rating": (),
    "label": _LABEL,
}
RANKING_NAMES: Names = {"query": _QUERY, "item": _ITEM, "rank": _RANK, "score": ()}
LABEL_NAMES: Names = {"query": _QUERY, "item": _ITEM, "label": _LABEL}
_TIME = ("timestamp", "tstamp", "date")
PAIR_NAMES: Names = {
    "query": (),
    "expert": _VOTERS,
    "winner": (),
    "loser": (),
    "weight": (),
    "tie": (),
    "time": _TIME,
}
BATTLE_NAMES: Names = {
    "query": (),
    "expert": _VOTERS,
    "model_a": ("left",),
    "model_b": ("right",),
    "winner": (),
    "weight": (),
    "time": _TIME,
}
_ALL = tuple(dict.fromkeys((*LIST_NAMES, *PAIR_NAMES, *BATTLE_NAMES)))
_PYTERRIER = {"qid", "docno"}
_CONSTANT = {"q0", "iteration", "iter"}  # columns of TREC files that say nothing


def known_columns(
    names: Sequence[str], wanted: Names, columns: Mapping[str, str] | None = None, *, where: str = "the table"
) -> dict[str, str]:
    """Which columns of a table have which meaning: our name of every column found, with the table's name.

    Parameters
    ----------
    names
        The table's columns.
    wanted
        ``LIST_NAMES``, ``RANKING_NAMES``, ``LABEL_NAMES``, ``PAIR_NAMES`` or ``BATTLE_NAMES``.
    columns
        What the caller says: the table's name of a column, with our name for it.
    where
        What errors call the table.

    >>> known_columns(["qid", "docno", "score", "url"], LIST_NAMES)
    {'query': 'qid', 'item': 'docno', 'score': 'score'}
    >>> known_columns(["user", "site", "rank"], LIST_NAMES, {"site": "item"})
    {'expert': 'user', 'item': 'site', 'rank': 'rank'}
    """
    chosen = _chosen(names, wanted, columns or {}, where)
    free = [name for name in names if name not in chosen.values()]
    for name, others in wanted.items():
        if name in chosen:
            continue
        found = _without_text([column for column in free if column.lower() in (name, *others)], free)
        if name in found and name != "query":  # a query may be an id and a text
            found = [name]
        if (
            len(found) > 1 and "model_a" in wanted and name == "expert"
        ):  # the logs of battles have many columns, and may lack experts
            continue
        if len(found) > 1:
            raise UsageError(
                f"{where} has columns {', '.join(found)}, each of which could be the {name}; "
                f"say which: columns={{{found[0]!r}: {name!r}}}"
            )
        if found:
            chosen[name] = found[0]
    return {name: chosen[name] for name in wanted if name in chosen}


def is_battles(names: Sequence[str], columns: Mapping[str, str] | None = None) -> bool:
    """Whether a table with these columns holds battles: two named sides and a winner.

    >>> is_battles(["left", "right", "winner"]), is_battles(["winner", "loser"])
    (True, False)
    """
    ours = {*map(str.lower, names), *(columns or {}).values()}
    return {"model_a", "model_b"} <= ours or {"left", "right", "winner"} <= ours


def label_columns(
    names: Sequence[str], columns: Mapping[str, str] | None = None, *, where: str = "the labels"
) -> dict[str, str]:
    """As ``known_columns`` for a table of labels, whose label BEIR and MTEB call ``score``.

    >>> label_columns(["query-id", "corpus-id", "score"])
    {'query': 'query-id', 'item': 'corpus-id', 'label': 'score'}
    """
    found = known_columns(names, LABEL_NAMES, columns, where=where)
    score = next((name for name in names if name.lower() == "score"), None)
    return found if "label" in found or score is None else {**found, "label": score}


def _chosen(names: Sequence[str], wanted: Names, columns: Mapping[str, str], where: str) -> dict[str, str]:
    """Our name and the table's name of the columns that the caller names; names for other tables are passed over."""
    chosen: dict[str, str] = {}
    for column, name in columns.items():
        if name not in _ALL:
            raise unknown("name for a column", name, _ALL)
        if column not in names or name not in wanted:
            continue
        if name in chosen:
            raise UsageError(f"{where}: {chosen[name]} and {column} are both named '{name}'; name one of them so")
        chosen[name] = column
    return chosen


def _without_text(found: Sequence[str], names: Sequence[str]) -> list[str]:
    """In PyTerrier's tables ``query`` is the text of the query, and ``docid`` a number of the index."""
    return [name for name in found if name not in ("query", "docid")] if set(names) >= _PYTERRIER else list(found)


def not_understood(
    names: Sequence[str], found: Mapping[str, str], columns: Mapping[str, str] | None = None
) -> list[str]:
    """The columns that have no meaning here and are not known to be ballast, given the result of ``known_columns``.

    Ballast are TREC's constant columns, the time of a rating, and other names of a column that the caller names in
    ``columns``. In tables of PyTerrier, whose stages add columns as they like, everything is.

    >>> not_understood(["qid", "Q0", "docno", "rank", "score", "run"], {})
    []
    >>> names = ["query", "iteration", "item", "relevance", "url"]
    >>> not_understood(names, known_columns(names, LABEL_NAMES))
    ['url']
    """
    if set(names) >= _PYTERRIER:
        return []
    ballast = _CONSTANT | ({"timestamp"} if "rating" in found else set())
    ballast = ballast.union(*((name, *LIST_NAMES.get(name, ())) for name in (columns or {}).values()))
    return [name for name in names if name not in found.values() and name.lower() not in ballast]


def counts_from_zero(names: Sequence[str]) -> bool:
    """Whether the ranks of a table with these columns may start at 0, as PyTerrier's do."""
    return set(names) >= _PYTERRIER


def folder_columns(folders: Sequence[str]) -> dict[str, str]:
    """Columns that the names of folders give, nearest folder first, as Hive and Spark lay out tables.

    >>> folder_columns(["expert=BM25%2B", "query=7", "runs"])
    {'expert': 'BM25+', 'query': '7'}
    """
    found: dict[str, str] = {}
    for folder in folders:
        name, between, value = folder.partition("=")
        if not between or not name:
            break
        found.setdefault(name, unquote(value))
    return found
