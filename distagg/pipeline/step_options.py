"""The one table of options: what a command of this name takes as options, a step of a job takes as fields.

Job files (``distagg.pipeline.fields``) and commands (``distagg.cli``) are both made of these rows, so an option cannot
be known to one and unknown to the other. This module imports nothing heavy, because every command reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distagg.errors import UsageError

REQUIRED: Any = object()
KINDS = ("letor", "trec", "ratings", "rankings", "pairs", "beir")
FORMATS = ("parquet", "trec", "csv")
PRODUCTS = ("elasticsearch", "opensearch", "qdrant", "vespa", "json")
PERIODS = ("year", "month", "week", "day")
DEFAULT_METRICS = ("ndcg@5", "ndcg@10", "p@5", "map")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a step, and the option of the command that does the same.

    ``kind`` says how a value is read, in a job file by ``distagg.pipeline.spec``, on the command line by
    ``distagg.cli.options``. A field with default None may be absent. ``flags`` are the option's names; a field without
    any is one of job files alone.
    """

    kind: str
    help: str
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()
    least: float | None = None
    flags: tuple[str, ...] = ()
    metavar: str | None = None


def _text(flag: str, metavar: str, help: str, default: Any = None, kind: str = "text") -> Field:
    return Field(kind, help, default, flags=(flag,), metavar=metavar)


def _whole(flag: str, metavar: str, help: str, default: Any = None, least: int = 0) -> Field:
    return Field("whole", help, default, least=least, flags=(flag,), metavar=metavar)


def _choice(flag: str, choices: tuple[str, ...], help: str, default: Any = None) -> Field:
    return Field("choice", help, default, choices, flags=(flag,))


def _flag(flag: str, help: str) -> Field:
    return Field("flag", help, False, flags=(flag,))


def _settings(form: str, help: str, flag: str = "-p") -> Field:
    return Field("settings", help, {}, flags=(flag,), metavar=form)


_METRICS = Field(
    "metrics",
    "a metric: ndcg@10, ndcg(exp)@10, p@3, recall@100, success@1, map, mrr, rprec, bpref, infap, f1@5, dcg@10, err, "
    "rbp(0.95), judged@10, tau, or a name of trec_eval or ir-measures; several are allowed",
    list(DEFAULT_METRICS),
    flags=("-m",),
    metavar="METRIC",
)
_PROTOCOL = _choice(
    "--protocol",
    ("letor", "trec"),
    "compute metrics as the LETOR scripts or as trec_eval do (default: letor for LETOR files, else trec)",
)
_GOAL = _text(
    "--goal", "METRIC", "metric that fitting optimises on validation data (default map)", "map", kind="metric"
)
_TRIES = _whole("--tries", "N", "try N random combinations of settings instead of all", least=1)
_SEARCH = (
    "set a model's parameter; of several values (a,b,c tries each, low..high draws from a range) those that score best "
    "on validation queries are used"
)
_WHERE = _text("--where", "CONDITION", "use only experts that match: \"age < 25 and gender = 'F'\"")
_PERIOD = {
    "since": _text("--since", "DATE", "take only pairs at or after this time, as in 2026-01-31"),
    "until": _text("--until", "DATE", "take only pairs before this time"),
}
_SHORTCUTS = {
    "depth": _whole("--depth", "K", "take only the first K of each list; a setting, too", least=1),
    "weights": _text("--weights", "NAME:W,...", "weights of experts, as in dense:2,bm25:1; a setting, too"),
}
_SAFE_CSV = _flag(
    "--safe-csv",
    "in CSV, write an apostrophe before text that begins with = + - @ or a tab, which a spreadsheet would run as a "
    "formula",
)
_COMPLETION = _settings("key=value", "set a parameter of the completion", "-c")
_REPLICATE = "replicate each {} T times (default 1)"


def _complete(help: str) -> Field:
    return _text("--complete", "pmf|neighbours|RATING", help)


OPTIONS: dict[str, dict[str, Field]] = {
    "import": {
        "kind": Field(
            "choice",
            f"what the files are: {', '.join(KINDS)} (default: told by their content; unclear content is an error)",
            None,
            KINDS,
            flags=("--kind",),
            metavar="KIND",
        ),
        "qrels": _text("--qrels", "FILE", "relevance judgements, with lines 'QUERY 0 ITEM LABEL'", kind="path"),
        "columns": Field(
            "columns",
            "rename columns of the files, such as qid=query,docno=item",
            None,
            flags=("--columns",),
            metavar="THEIRS=OURS,...",
        ),
        "expert": _choice("--expert", ("file", "tag"), "trec: the expert is the file or the tag (default file)"),
        "by": _choice("--by", ("score", "rank"), "trec: order lists by score or by rank (default score)"),
        "users": _text(
            "--users",
            "FILE",
            "ratings: attributes of users for where (u.user, users.dat, CSV, Parquet)",
            kind="path",
        ),
        "items": _text(
            "--items", "FILE", "ratings: titles of items (u.item, movies.dat, movies.csv, Parquet)", kind="path"
        ),
        "covariates": _text(
            "--covariates", "COLUMN,...", "pairs: columns to keep for fits, as in length_a-length_b,position"
        ),
        "scale": _text("--scale", "LOW,HIGH", "ratings: smallest and largest valid rating, as 0.5,5", kind="interval"),
        "append": _flag(
            "--append",
            "add the files' queries (or experts) to DATASET, which exists, all or nothing; readers of its earlier "
            "version go on. 'distagg compact' merges the small parts. In a job: add the files that are new since the "
            "run before to its dataset",
        ),
    },
    "expand": {
        "experts": _whole("--experts", "T", _REPLICATE.format("expert"), 1, least=1),
        "items": _whole("--items", "T", _REPLICATE.format("item"), 1, least=1),
    },
    "fit": {
        "valid": _text(
            "--valid",
            "DATA",
            "labelled validation data for early stopping and the choice of settings (default: the training data); "
            "models without early stopping, such as bestinput, learn from both",
            kind="dataset",
        ),
        "folds": _text(
            "--folds",
            "letor5|K",
            "choose settings by cross-validation: letor5 (five files), or K folds",
            kind="folds",
        ),
        "settings": _settings("key=value", _SEARCH),
        "tries": _TRIES,
        **_SHORTCUTS,
        "goal": _GOAL,
        "protocol": _PROTOCOL,
    },
    "tune": {
        "models": _text("--models", "a,b,...", "rules to tune (default rrf,combsum)", ["rrf", "combsum"], "models"),
        "folds": _text(
            "--folds", "letor5|K", "how to hold out queries: letor5 (five files), or K folds (default 5)", "5", "folds"
        ),
        "goal": Field("metric", "the metric to tune for; on the command line it is the first -m", "ndcg@10"),
        "metrics": Field("metrics", _METRICS.help, None, flags=("-m",), metavar="METRIC"),
        "protocol": _PROTOCOL,
        "beside": _text(
            "--beside", "a,b,...", "trained models to test on the same folds, such as crf,blend", kind="models"
        ),
        "product": _choice(
            "--export",
            PRODUCTS,
            "the query of a search engine: tune only what it can compute. The command prints it, and its table goes to "
            "stderr; a step keeps it with the model",
        ),
    },
    "rank": {
        "format": _choice(
            "--format",
            FORMATS,
            "output format (default: by the ending of RANKINGS, else parquet; on stdout trec for TREC runs, else csv)",
            "parquet",
        ),
        "top": _whole("--top", "K", "print or write only the first K items of each query", 0),
        "settings": _settings(
            "key=value", "set a model's parameter; repeat for more; 'distagg models MODEL' lists them"
        ),
        **_SHORTCUTS,
        "where": _WHERE,
        **_PERIOD,
        "complete": _complete("complete every user's missing ratings before ranking"),
        "completion": _COMPLETION,
        "support": _flag(
            "--support",
            "add columns with the evidence for each item. From lists: the number of experts that list it, and the "
            "pairs that it wins and loses in their lists. From pairs: its comparisons (with ties), won and lost, each "
            "counted by weight",
        ),
        "min_support": _whole(
            "--min-support",
            "N",
            "omit items with fewer than N experts (for pairs: N comparisons), and print how many were omitted",
            0,
        ),
        "titles": _flag("--titles", "add the column title, if the dataset has titles"),
        "bootstrap": _whole(
            "--bootstrap",
            "N",
            "measure uncertainty: draw the experts N times with replacement, and rank each draw. Adds the columns "
            "deviation (of the score), rank_low and rank_high (a 95% interval), and draws (how many draws contain the "
            "item; the others are not counted)",
            0,
        ),
        "safe_csv": _SAFE_CSV,
        "allow_unseen": _flag(
            "--allow-unseen",
            "continue even if more than half of the entries come from experts that MODELDIR has not seen",
        ),
    },
    "evaluate": {
        "metrics": _METRICS,
        "protocol": _PROTOCOL,
        "where": _WHERE,
        "complete": _complete("with a dataset of ratings: complete them, and print the mean ndcg@k over users"),
        "completion": _COMPLETION,
    },
    "compare": {
        "models": _text(
            "--models", "a,b,...", "models to compare (default: all that can use the data)", REQUIRED, "models"
        ),
        "folds": _text(
            "--folds",
            "letor5|K",
            "cross-validate: letor5 (five files), or K folds; required for supervised models",
            kind="folds",
        ),
        "baseline": _text("--baseline", "MODEL", "model to test the others against (default: the best)"),
        "metrics": _METRICS,
        "settings": _settings("MODEL.key=value", _SEARCH),
        "tries": _TRIES,
        "goal": _GOAL,
        "protocol": _PROTOCOL,
    },
    "board": {
        "model": _text("--model", "MODEL", "bradley_terry (default) or thurstone", "bradley_terry", kind="model"),
        "scale": _text(
            "--scale", "elo|log", "elo: 400 / ln 10, around 1000 (default); log: logarithms of odds, around 0"
        ),
        "anchor": _text(
            "--anchor",
            "NAME:VALUE",
            "give an item a score, as in gpt-4:1200; intervals are then of gaps to it",
        ),
        "level": Field(
            "number", "confidence of all intervals (default 0.95)", None, least=0, flags=("--level",), metavar="P"
        ),
        "settings": _settings(
            "key=value", "set a parameter of the model, such as errors=bootstrap, ties=davidson or base=1500"
        ),
        "min_battles": _whole(
            "--min-battles",
            "N",
            "leave items with fewer battles off the board, and print how many; they still take part in the fit",
            0,
        ),
        "query": _text("--query", "QUERY", "only this query (default: a board for each)"),
        **_PERIOD,
        "by": Field(
            "choice",
            "add boards by year, month, week or day, as a picture",
            None,
            PERIODS,
            flags=("--by",),
            metavar="PERIOD",
        ),
        "safe_csv": _SAFE_CSV,
    },
}


def with_shortcuts(settings: dict[str, Any], **shortcuts: Any) -> dict[str, Any]:
    """A model's settings with the options that are short for some; each may be given once.

    >>> with_shortcuts({"c": 10}, depth=100, weights=None)
    {'c': 10, 'depth': 100}
    """
    given = {name: value for name, value in shortcuts.items() if value is not None}
    twice = next((name for name in given if name in settings), None)
    if twice:
        raise UsageError(f"found {twice} as an option of its own and among the settings, expected one of them")
    return settings | given
