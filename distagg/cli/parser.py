"""The arguments of every command. This module imports nothing heavy, so that ``--help`` is instant."""

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
    "pairs": "CSV, Parquet or JSON lines: winner, loser (or model_a, model_b, winner), and optionally expert (or "
    "judge), query, weight, tie",
}
EXAMPLES = """examples:
  distagg demo
  distagg import letor A1.txt A2.txt A3.txt A4.txt A5.txt -o mq
  distagg compare mq --models rrf,borda,mc4 --folds letor5 -m ndcg@5 -m map --report out.html
  distagg rank rrf mq -o rankings
'distagg COMMAND --help' has more examples; jobs/guides/ explains complete tasks
exit codes: 0 done, 1 not converged, 2 wrong usage, 3 bad input, 4 infrastructure,
  70 a bug in distagg, 130/143 interrupted"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="distagg",
        description="Combine partial, noisy, conflicting preferences into one ranking per query.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
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
    everywhere.add_argument(
        "--json", action="store_true", help="print the result as JSON on stdout; messages go to stderr"
    )
    everywhere.add_argument(
        "--seed", type=_seed, metavar="N", help="seed of all random numbers (default 0, or the seed of a saved model)"
    )
    _debug(everywhere)
    if cluster:
        cluster_options = everywhere.add_mutually_exclusive_group()
        cluster_options.add_argument(
            "--workers", type=int, metavar="N", help="run on N local worker processes (default: in this process)"
        )
        cluster_options.add_argument("--scheduler", metavar="ADDRESS", help="run on the Dask cluster at this address")
    return parser


def _seed(word: str) -> int:
    if not (word.isascii() and word.isdigit() and int(word) < 2**63):
        raise argparse.ArgumentTypeError(f"found '{word}', expected a whole number of at least 0")
    return int(word)


def _debug(parser: Any) -> None:
    # No default: the default of a subcommand would overwrite the option given before the subcommand.
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS,
        help="print the traceback of an error (also: DISTAGG_DEBUG=1)",
    )  # fmt: skip


def _late(module: str, name: str) -> Callable[[argparse.Namespace], None]:
    def run(arguments: argparse.Namespace) -> None:
        getattr(import_module(f"distagg.cli.{module}"), f"run_{name}")(arguments)

    return run


def _demo(commands: Any) -> None:
    parser = _command(commands, "demo", "compare and rank built-in synthetic data, and write a report")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", default="out/demo", help="folder for the results (default out/demo)"
    )
    parser.add_argument("--queries", type=int, default=400, help="number of synthetic queries (default 400)")
    parser.add_argument("--all", action="store_true", help="compare all models instead of ten")


def _import(commands: Any) -> None:
    parser = _command(commands, "import", "read source files into a sorted, partitioned dataset", cluster=False)
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for kind, help in SOURCE_HELP.items():
        source = kinds.add_parser(kind, help=help, description=help)
        source.add_argument("sources", nargs="+", metavar="SRC", help="files, or directories of files")
        source.add_argument("-o", "--output", required=True, metavar="DATASET", help="the dataset directory to create")
        source.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print a summary of the dataset as JSON"
        )
        _debug(source)
        if kind == "ratings":
            source.add_argument(
                "--users", metavar="FILE", help="attributes of users for --where (u.user, users.dat, CSV, Parquet)"
            )
            source.add_argument(
                "--items", metavar="FILE", help="titles of items (u.item, movies.dat, movies.csv, Parquet)"
            )
            source.add_argument("--scale", metavar="LOW,HIGH", help="smallest and largest valid rating, such as 0.5,5")
        if kind == "trec":
            source.add_argument("--qrels", metavar="FILE", help="judgements: query 0 item label")
            source.add_argument(
                "--expert",
                choices=("file", "tag"),
                default="file",
                help="take the expert's name from the file or the tag (default file)",
            )
            source.add_argument(
                "--by",
                choices=("score", "rank"),
                default="score",
                help="order lists by score or by rank (default score)",
            )
    teach(kinds, "import ")


def _expand(commands: Any) -> None:
    parser = _command(commands, "expand", "write a larger dataset: replicate each expert or item", cluster=False)
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("-o", "--output", required=True, metavar="DATASET", help="the dataset directory to create")
    parser.add_argument("--experts", type=int, default=1, metavar="T", help="replicate each expert T times (default 1)")
    parser.add_argument("--items", type=int, default=1, metavar="T", help="replicate each item T times (default 1)")


def _info(commands: Any) -> None:
    parser = _command(commands, "info", "print the size, labels and other facts of a dataset", cluster=False)
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("--report", metavar="FILE.html", help="write a self-contained page")


def _models(commands: Any) -> None:
    parser = _command(commands, "models", "list all models, or explain one: cost, paper, parameters", cluster=False)
    parser.add_argument("name", nargs="?", metavar="MODEL", help="explain this model and its parameters")


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
        help="set a model's parameter; a,b,c tries each value, low..high draws from a range; the settings that score "
        "best on validation queries are used",
    )  # fmt: skip
    parser.add_argument("--tries", type=int, metavar="N", help="try N random combinations instead of all")


def _goal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--goal",
        default="map",
        metavar="METRIC",
        help="metric that fitting optimises on validation queries (default map)",
    )
    _protocol(parser)


def _protocol(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--protocol",
        choices=("letor", "trec"),
        help="compute metrics as the LETOR scripts or as trec_eval do (default: letor for LETOR files, else trec)",
    )


def _metrics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m", dest="metrics", action="append", metavar="METRIC",
        help="ndcg@5, p@3, map, mrr, err, rbp(0.95), tau; repeat for more",
    )  # fmt: skip


def _fit(commands: Any) -> None:
    parser = _command(commands, "fit", "learn the parameters that a model shares between queries")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("dataset", metavar="DATASET")
    _expanded(parser)
    parser.add_argument("-o", "--output", required=True, metavar="MODELDIR")
    parser.add_argument(
        "--valid",
        metavar="DATASET",
        help="labelled validation data for early stopping and the choice of settings (default: the training data); "
        "models without early stopping, such as bestinput, learn from both",
    )
    parser.add_argument(
        "--folds", metavar="letor5|K", help="choose settings by cross-validation: letor5 (five files), or K folds"
    )
    _search(parser, "key=value")
    _goal(parser)


def _rank(commands: Any) -> None:
    parser = _command(commands, "rank", "rank every query of a dataset")
    parser.add_argument("model", metavar="MODEL|MODELDIR", help="a model's name, or a model fitted by 'distagg fit'")
    parser.add_argument("dataset", metavar="DATASET")
    _expanded(parser)
    parser.add_argument("-o", "--output", required=True, metavar="RANKINGS")
    parser.add_argument(
        "--format", choices=("parquet", "trec", "csv"), help="default: by the ending of RANKINGS, else parquet"
    )
    _where(parser)
    _complete(parser, "complete every user's missing ratings before ranking")
    parser.add_argument(
        "--support", action="store_true",
        help="add columns with the evidence for each item: for lists the number of experts that list it, and pairs won "
        "and lost there; for pairs its comparisons (with ties), won and lost, each counted by weight",
    )  # fmt: skip
    parser.add_argument(
        "--min-support", type=int, default=0, metavar="N",
        help="omit items with fewer experts (for pairs: comparisons), and print how many",
    )  # fmt: skip
    parser.add_argument("--titles", action="store_true", help="add the column title, if the dataset has titles")
    parser.add_argument(
        "--report",
        metavar="FILE.html",
        help="write a page with the top and bottom of the first ranking, and uncertainty",
    )
    parser.add_argument(
        "--bootstrap", type=int, default=0, metavar="N",
        help="draw the experts N times with replacement; adds the columns deviation (of the score), rank_low "
        "and rank_high (95%%) over the draws that contain the item, and draws, their number",
    )  # fmt: skip
    _allow_unseen(parser)
    _settings(parser, "key=value")


def _allow_unseen(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-unseen", action="store_true",
        help="continue even if more than half of the entries come from experts that MODELDIR has not seen",
    )  # fmt: skip


def _expanded(parser: argparse.ArgumentParser) -> None:
    """Options that expand the dataset while it is read; 'distagg expand' writes an expanded dataset."""
    for what in ("experts", "items"):
        parser.add_argument(
            f"--expand-{what}", type=int, default=1, metavar="T", help=f"replicate each {what[:-1]} T times (default 1)"
        )


def _result(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE.json", help="write the output of --json to a new file")


def _where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--where", metavar="CONDITION", help="use only experts that match: \"age < 25 and gender = 'F'\""
    )


def _complete(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--complete", metavar="pmf|neighbours|RATING", help=help)
    parser.add_argument(
        "-c", dest="completion", action="append", default=[], metavar="key=value", help="set a parameter of --complete"
    )


def _evaluate(commands: Any) -> None:
    help = "evaluate rankings against a dataset's labels, or against every user's completed ratings"
    parser = _command(commands, "evaluate", help)
    parser.add_argument(
        "rankings", metavar="RANKINGS", help="output of 'distagg rank', or a TREC run, CSV (.gz too) or Parquet file"
    )
    parser.add_argument("dataset", metavar="DATASET")
    _result(parser)
    _expanded(parser)
    _where(parser)
    _complete(parser, "complete every user's missing ratings, and print the mean ndcg@k over users")
    _metrics(parser)
    _protocol(parser)


def _compare(commands: Any) -> None:
    parser = _command(commands, "compare", "evaluate models side by side, with significance tests")
    parser.add_argument("dataset", metavar="DATASET")
    _result(parser)
    _expanded(parser)
    parser.add_argument("--models", metavar="a,b,...", help="models to compare (default: all that can use the data)")
    parser.add_argument(
        "--folds",
        metavar="letor5|K",
        help="cross-validate: letor5 (five files), or K folds; required for supervised models",
    )
    parser.add_argument("--baseline", metavar="MODEL", help="model to test the others against (default: the best)")
    parser.add_argument("--report", metavar="FILE.html", help="write a self-contained page")
    _search(parser, "MODEL.key=value")
    _metrics(parser)
    _goal(parser)


def _experts(commands: Any) -> None:
    parser = _command(commands, "experts", "which experts a model uses, inverts or ignores", module="understand")
    parser.add_argument("model", metavar="MODELDIR", help="a model fitted by 'distagg fit'")
    parser.add_argument("--data", metavar="DATASET", help="data to test experts on (default: synthetic lists)")
    parser.add_argument("--report", metavar="FILE.html", help="write weights and verdicts as a self-contained page")
    parser.add_argument(
        "--retrain", metavar="MODELDIR", help="fit again on --data without the unused experts, and compare"
    )
    parser.add_argument("--valid", metavar="DATASET", help="labelled validation data for --retrain and its comparison")
    _allow_unseen(parser)
    _goal(parser)


def _explain(commands: Any) -> None:
    about = "which experts moved each item of a query up or down"
    parser = _command(commands, "explain", about, cluster=False, module="understand")
    parser.add_argument("model", metavar="MODEL|MODELDIR", help="a model's name, or a model fitted by 'distagg fit'")
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument(
        "--query", dest="queries", action="append", required=True, metavar="QUERY", help="repeat for more"
    )
    parser.add_argument("--report", metavar="FILE.html", help="write a self-contained page")
    _allow_unseen(parser)


def _features(commands: Any) -> None:
    about = "write features of items as Parquet, for use with any other learner"
    parser = _command(commands, "features", about, module="understand")
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="a directory of Parquet files")
    parser.add_argument("--kind", default="svd", metavar="KIND", help="svd or borda (default svd)")
    parser.add_argument(
        "--pairs", default="log", metavar="NAME", help="binary, difference, normalised, log or all (default log)"
    )
    parser.add_argument(
        "--rank", type=int, default=1, metavar="N", help="number of singular triplets of svd (default 1)"
    )
    parser.add_argument("--combined", action="store_true", help="one set of features for the sum of all experts")


def _certificates(commands: Any) -> None:
    parser = _command(
        commands, "certificates", "create TLS certificates and Dask settings for a cluster", cluster=False
    )
    parser.add_argument("folder", metavar="FOLDER", help="the folder to create; DASK_CONFIG=FOLDER uses it")
    parser.add_argument("--hosts", metavar="a,b,...", default="", help="host names and addresses in the certificate")
    parser.add_argument("--days", type=int, default=365, help="days of validity (default 365)")
    parser.add_argument("--at", metavar="PATH", help="path of the folder on the hosts (default: FOLDER)")
