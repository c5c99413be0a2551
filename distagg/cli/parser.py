"""Arguments of every command. Nothing heavy is imported here, so that ``--help`` is instant."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

from distagg.cli.job_arguments import add_job_commands
from distagg.cli.teach import teach

SOURCE_HELP = {
    "letor": "LETOR aggregation files: label qid:Q 1:RANK ... #docid = ID",
    "trec": "TREC run files (.gz too), one expert per file or per tag; labels from --qrels",
    "ratings": "MovieLens u.data, ratings.dat, ratings.csv or Parquet: users are experts",
    "rankings": "long CSV, Parquet or JSON lines (query, expert, item, rank or score, label), or PrefLib files",
    "pairs": "CSV, Parquet or JSON lines: winner, loser (or model_a, model_b, winner) and perhaps expert (or judge), "
    "query, weight, tie",
}
EXAMPLES = """examples:
  distagg demo
  distagg import letor A1.txt A2.txt A3.txt A4.txt A5.txt -o mq
  distagg compare mq --models rrf,borda,mc4 --folds letor5 -m ndcg@5 -m map --report out.html
  distagg rank rrf mq -o rankings
'distagg COMMAND --help' has more examples; jobs/guides/ goes through whole tasks
exit codes: 0 done, 1 not converged, 2 wrong usage, 3 bad input, 4 infrastructure,
  70 a bug in distagg, 130/143 interrupted"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="distagg",
        description="Combine partial, noisy, conflicting preferences into one ranking per query.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and stop")
    _debug(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _demo(commands)
    _import(commands)
    _expand(commands)
    _info(commands)
    _models(commands)
    _fit(commands)
    _rank(commands)
    _evaluate(commands)
    _compare(commands)
    _experts(commands)
    _explain(commands)
    _features(commands)
    add_job_commands(commands, _command)
    _certificates(commands)
    teach(commands)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *rest: Any, **more: Any) -> None:
        from importlib.metadata import version

        print(f"distagg {version('distagg')}")
        parser.exit()


def _command(
    commands: Any, name: str, help: str, *, cluster: bool = True, module: str = "commands"
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
    parser.set_defaults(run=_late(module, name))
    everywhere = parser.add_argument_group("everywhere")
    everywhere.add_argument("--json", action="store_true", help="print data on stdout; talk goes to stderr")
    everywhere.add_argument(
        "--seed", type=_seed, metavar="N", help="seed of everything that draws (default 0, or a saved model's own)"
    )
    _debug(everywhere)
    if cluster:
        place = everywhere.add_mutually_exclusive_group()
        place.add_argument("--workers", type=int, metavar="N", help="run on N local worker processes (default: inline)")
        place.add_argument("--scheduler", metavar="ADDRESS", help="run on the Dask cluster at this address")
    return parser


def _seed(word: str) -> int:
    if not (word.isascii() and word.isdigit() and int(word) < 2**63):
        raise argparse.ArgumentTypeError(f"found '{word}', expected a whole number of at least 0")
    return int(word)


def _debug(parser: Any) -> None:
    # No default: that of a subcommand would overwrite what the command before it was given.
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS,
        help="print the traceback of an error (also: DISTAGG_DEBUG=1)",
    )  # fmt: skip


def _late(module: str, name: str) -> Callable[[argparse.Namespace], None]:
    def run(arguments: argparse.Namespace) -> None:
        getattr(import_module(f"distagg.cli.{module}"), f"run_{name}")(arguments)

    return run


def _demo(commands: Any) -> None:
    parser = _command(commands, "demo", "everything, on built-in synthetic data, with a report")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", default="out/demo", help="where results go (default out/demo)"
    )
    parser.add_argument("--queries", type=int, default=400, help="size of the synthetic data (default 400)")
    parser.add_argument("--all", action="store_true", help="compare every model, not ten of them")


def _import(commands: Any) -> None:
    parser = _command(commands, "import", "read source files into a sorted, partitioned dataset", cluster=False)
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for kind, help in SOURCE_HELP.items():
        one = kinds.add_parser(kind, help=help, description=help)
        one.add_argument("sources", nargs="+", metavar="SRC", help="files, or directories of files")
        one.add_argument("-o", "--output", required=True, metavar="DATASET", help="the dataset directory to make")
        one.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print what was imported as JSON"
        )
        _debug(one)
        if kind == "ratings":
            one.add_argument(
                "--users", metavar="FILE", help="about users (u.user, users.dat, CSV, Parquet): columns for --where"
            )
            one.add_argument(
                "--items", metavar="FILE", help="about items (u.item, movies.dat, movies.csv, Parquet): titles"
            )
            one.add_argument("--scale", metavar="LOW,HIGH", help="refuse ratings outside it, such as 0.5,5")
        if kind == "trec":
            one.add_argument("--qrels", metavar="FILE", help="judgements: query 0 item label")
            one.add_argument(
                "--expert", choices=("file", "tag"), default="file", help="what names the expert (default file)"
            )
            one.add_argument(
                "--by", choices=("score", "rank"), default="score", help="what orders a list (default score)"
            )
    teach(kinds, "import ")


def _expand(commands: Any) -> None:
    parser = _command(commands, "expand", "a larger dataset: every expert or item several times over", cluster=False)
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("-o", "--output", required=True, metavar="DATASET", help="the dataset directory to make")
    parser.add_argument("--experts", type=int, default=1, metavar="T", help="so many of every expert (default 1)")
    parser.add_argument("--items", type=int, default=1, metavar="T", help="so many of every item (default 1)")


def _info(commands: Any) -> None:
    parser = _command(commands, "info", "what is in a dataset", cluster=False)
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("--report", metavar="FILE.html", help="draw it as a self-contained page")


def _models(commands: Any) -> None:
    parser = _command(commands, "models", "what models there are; of one also cost, paper, parameters", cluster=False)
    parser.add_argument("name", nargs="?", metavar="MODEL", help="only this one, with its parameters explained")


def _settings(parser: argparse.ArgumentParser, form: str) -> None:
    parser.add_argument(
        "-p",
        dest="settings",
        action="append",
        default=[],
        metavar=form,
        help="set a model's parameter; repeat for more; 'distagg models MODEL' lists them",
    )


def _search(parser: argparse.ArgumentParser, form: str) -> None:
    parser.add_argument(
        "-p", dest="settings", action="append", default=[], metavar=form,
        help="set a model's parameter; a,b,c tries each value, low..high draws from a range, and what does best on "
        "validation queries is taken",
    )  # fmt: skip
    parser.add_argument("--tries", type=int, metavar="N", help="try N random combinations instead of all")


def _goal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--goal", default="map", metavar="METRIC", help="what fitted models choose by (default map)")
    _protocol(parser)


def _protocol(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--protocol",
        choices=("letor", "trec"),
        help="how metrics are counted: as LETOR's scripts or as trec_eval (default: letor for LETOR files, else trec)",
    )


def _metrics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m", dest="metrics", action="append", metavar="METRIC",
        help="ndcg@5, p@3, map, mrr, err, rbp(0.95), tau; repeat for more",
    )  # fmt: skip


def _fit(commands: Any) -> None:
    parser = _command(commands, "fit", "learn a model's shared parameters")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("dataset", metavar="DATASET")
    _expanded(parser)
    parser.add_argument("-o", "--output", required=True, metavar="MODELDIR")
    parser.add_argument(
        "--valid",
        metavar="DATASET",
        help="labelled data to stop training and choose settings by (default: the training data); models that do not "
        "stop early, such as bestinput, learn from both",
    )
    parser.add_argument(
        "--folds", metavar="letor5|K", help="choose among settings by cross-validation: letor5 (five files), or K"
    )
    _search(parser, "key=value")
    _goal(parser)


def _rank(commands: Any) -> None:
    parser = _command(commands, "rank", "rank every query of a dataset")
    parser.add_argument("model", metavar="MODEL|MODELDIR", help="a model's name, or what 'distagg fit' made")
    parser.add_argument("dataset", metavar="DATASET")
    _expanded(parser)
    parser.add_argument("-o", "--output", required=True, metavar="RANKINGS")
    parser.add_argument(
        "--format", choices=("parquet", "trec", "csv"), help="default: by the ending of RANKINGS, else parquet"
    )
    _where(parser)
    _complete(parser, "complete every user's ratings by it, and rank those")
    parser.add_argument(
        "--support", action="store_true",
        help="add columns that say what the ranking rests on: of lists experts (that list the item), won and lost "
        "(pairs there); of pairs comparisons (ties too), won and lost, each counted with its weight",
    )  # fmt: skip
    parser.add_argument(
        "--min-support", type=int, default=0, metavar="N",
        help="leave out items that fewer experts list, or of pairs, that have fewer comparisons; how many is said",
    )  # fmt: skip
    parser.add_argument("--titles", action="store_true", help="add the column title, of a dataset that has them")
    parser.add_argument("--report", metavar="FILE.html", help="draw both ends of the (first) ranking, and uncertainty")
    parser.add_argument(
        "--bootstrap", type=int, default=0, metavar="N",
        help="draw the experts again N times: columns deviation (of the score), rank_low and rank_high (95%%) over the "
        "draws that hold the item, and draws, their number",
    )  # fmt: skip
    _allow_unseen(parser)
    _settings(parser, "key=value")


def _allow_unseen(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-unseen", action="store_true",
        help="go on where more than half of the entries are by experts that MODELDIR does not know",
    )  # fmt: skip


def _expanded(parser: argparse.ArgumentParser) -> None:
    """An expansion that is made while reading; 'distagg expand' writes one."""
    for what in ("experts", "items"):
        parser.add_argument(
            f"--expand-{what}", type=int, default=1, metavar="T", help=f"read so many of every {what[:-1]} (default 1)"
        )


def _result(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE.json", help="keep what --json prints in a new file")


def _where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--where", metavar="CONDITION", help="hear only these experts: \"age < 25 and gender = 'F'\"")


def _complete(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--complete", metavar="pmf|neighbours|RATING", help=help)
    parser.add_argument(
        "-c", dest="completion", action="append", default=[], metavar="key=value", help="set a parameter of --complete"
    )


def _evaluate(commands: Any) -> None:
    help = "evaluate rankings against a dataset's labels, or against every user's completed ratings"
    parser = _command(commands, "evaluate", help)
    parser.add_argument(
        "rankings", metavar="RANKINGS", help="what 'distagg rank' made, or a TREC run, CSV (.gz too) or Parquet file"
    )
    parser.add_argument("dataset", metavar="DATASET")
    _result(parser)
    _expanded(parser)
    _where(parser)
    _complete(parser, "complete every user's ratings by it, and give the mean of their ndcg@k")
    _metrics(parser)
    _protocol(parser)


def _compare(commands: Any) -> None:
    parser = _command(commands, "compare", "evaluate models side by side, with significance tests")
    parser.add_argument("dataset", metavar="DATASET")
    _result(parser)
    _expanded(parser)
    parser.add_argument("--models", metavar="a,b,...", help="default: all that fit the data")
    parser.add_argument(
        "--folds", metavar="letor5|K", help="cross-validate: letor5 (five files), or K; needed by models that learn"
    )
    parser.add_argument("--baseline", metavar="MODEL", help="what others are tested against (default: the best)")
    parser.add_argument("--report", metavar="FILE.html", help="write a self-contained page")
    _search(parser, "MODEL.key=value")
    _metrics(parser)
    _goal(parser)


def _experts(commands: Any) -> None:
    parser = _command(commands, "experts", "which experts a model uses, turns round or ignores", module="understand")
    parser.add_argument("model", metavar="MODELDIR", help="what 'distagg fit' made")
    parser.add_argument("--data", metavar="DATASET", help="what to try experts on (default: a made-up list of each)")
    parser.add_argument("--report", metavar="FILE.html", help="draw weights and verdicts as a self-contained page")
    parser.add_argument("--retrain", metavar="MODELDIR", help="fit on --data without the unused experts, and compare")
    parser.add_argument("--valid", metavar="DATASET", help="labelled data that --retrain chooses and compares on")
    _allow_unseen(parser)
    _goal(parser)


def _explain(commands: Any) -> None:
    about = "which experts moved each item of a query up or down"
    parser = _command(commands, "explain", about, cluster=False, module="understand")
    parser.add_argument("model", metavar="MODEL|MODELDIR", help="a model's name, or what 'distagg fit' made")
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument(
        "--query", dest="queries", action="append", required=True, metavar="QUERY", help="repeat for more"
    )
    parser.add_argument("--report", metavar="FILE.html", help="draw it as a self-contained page")
    _allow_unseen(parser)


def _features(commands: Any) -> None:
    about = "write what lists say of items as Parquet, for any other learner"
    parser = _command(commands, "features", about, module="understand")
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="a directory of Parquet files")
    parser.add_argument("--kind", default="svd", metavar="KIND", help="svd or borda (default svd)")
    parser.add_argument(
        "--pairs", default="log", metavar="NAME", help="binary, difference, normalised, log or all (default log)"
    )
    parser.add_argument("--rank", type=int, default=1, metavar="N", help="singular triplets of svd (default 1)")
    parser.add_argument("--combined", action="store_true", help="features of the sum of all experts")


def _certificates(commands: Any) -> None:
    parser = _command(commands, "certificates", "certificates and settings for a cluster of hosts", cluster=False)
    parser.add_argument("folder", metavar="FOLDER", help="the folder to make; DASK_CONFIG=FOLDER uses it")
    parser.add_argument("--hosts", metavar="a,b,...", default="", help="names and addresses in the certificate")
    parser.add_argument("--days", type=int, default=365, help="how long they are valid (default 365)")
    parser.add_argument("--at", metavar="PATH", help="where hosts will have the folder (default: where it is made)")
