"""Every command by section of ``distagg --help``, and what all commands share: their options, help and examples.

This module imports nothing heavy: ``distagg --help`` and shell completion read the table below. The file of a command
is imported when the command is called or its own help is shown.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

import distagg
from distagg.errors import InfrastructureError, InputError, UsageError, escaped, unknown

if TYPE_CHECKING:
    from distagg.engine.runner import Runner

SECTIONS = {  # section: {command: (file in this folder, what it does)}
    "Rankings": {
        "rank": ("ranking", "rank every query of files or of a dataset"),
        "fit": ("ranking", "learn the parameters that a model shares between queries"),
        "tune": ("tune", "choose a plain rule's settings and weights on labels; export it to a search engine"),
        "board": ("board", "battles to a leaderboard: Elo, intervals of scores and ranks, a page"),
        "suggest": ("suggestions", "list the pairs of items to compare next, the most informative first"),
        "models": ("models", "list all models, or explain one: cost, paper, parameters"),
    },
    "Quality": {
        "evaluate": ("evaluating", "evaluate runs and rankings against judgements, with significance tests"),
        "compare": ("evaluating", "evaluate models side by side, with significance tests"),
        "experts": ("understand", "show which experts a model uses, inverts or ignores"),
        "explain": ("understand", "show which experts moved each item of a query up or down"),
        "features": ("understand", "write features of items as Parquet, for use with any other learner"),
    },
    "Data": {
        "import": ("datasets", "sort source files into a dataset, for data that is large or used again"),
        "compact": ("datasets", "merge the small parts of a dataset that 'import --append' leaves"),
        "info": ("datasets", "print the size, labels and other facts of files or of a dataset"),
        "verify": ("datasets", "check every file of a dataset, a model, rankings or a run against its hashes"),
        "export": ("datasets", "write lists or rankings as PrefLib files"),
        "expand": ("datasets", "write a larger dataset: replicate each expert or item"),
        "synthetic": ("datasets", "draw a dataset with a planted truth: labels, good, random and adversarial experts"),
    },
    "Jobs": {
        "new": ("starting", "write a commented job file: fusion, cross-validation, ratings, nightly, ..."),
        "run": ("jobs", "run a job, or finish one that stopped; a finished job does not run again"),
        "plan": ("jobs", "estimate a job's chunks, memory and time; writes nothing"),
        "resume": ("jobs", "resume a run that stopped"),
        "status": ("jobs", "show the state of a run"),
        "report": ("jobs", "write report.html of a run again"),
    },
    "This machine": {
        "example": ("starting", "write made-up files to try things on, with the guide that uses them"),
        "demo": ("demo", "compare and rank built-in synthetic data, and write a report"),
        "doctor": ("machine", "check that this machine can run distagg"),
        "warm": ("machine", "compile the models' kernels into this user's cache"),
        "certificates": ("machine", "create TLS certificates and Dask settings for a cluster"),
    },
}
COMMANDS = {name: row for section in SECTIONS.values() for name, row in section.items()}
EPILOG = """Examples:
  distagg rank rrf bm25.run dense.run > fused.run
  distagg evaluate bm25.run dense.run fused.run qrels.txt -m ndcg@10
  distagg compare runs/ --qrels qrels.txt --models rrf,borda,mc4
  distagg board battles.csv -o board.html
  distagg demo

'distagg COMMAND --help' has more examples, 'distagg example NAME DIR' a guide
  with files to try it on

Exit codes: 0 done, 1 not converged, 2 wrong usage, 3 bad input,
  4 infrastructure, 70 a bug in distagg, 130/143 interrupted"""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@dataclass(frozen=True)
class Call:
    """The options that every command has: what to print, the seed, where to run."""

    json: bool
    seed: int | None = None
    workers: int | None = None
    scheduler: str | None = None
    scheduler_file: str | None = None
    memory: str | None = None

    def show(self, value: Any, text: str = "", note: str = "") -> None:
        """Print ``value`` as JSON if the user asks for it, otherwise ``text``, and ``note`` on stderr."""
        if self.json:
            print(json.dumps(value, indent=1))
            return
        if text:
            print(text)
        if note:
            say(note)

    def runner(self) -> AbstractContextManager[Runner]:
        """Where to run: here, or on the cluster that the options name."""
        return run_in(self.workers, self.address(), self.memory)

    def address(self) -> str | None:
        """The scheduler that the options name, by address or by the file that it wrote."""
        if self.scheduler_file is None:
            return self.scheduler
        if self.scheduler is not None:
            raise UsageError("found --scheduler and --scheduler-file, expected one of them")
        return _address_in(self.scheduler_file)


def _address_in(file: str) -> str:
    """The address in a file that ``dask scheduler --scheduler-file`` wrote."""
    expected = "the JSON that 'dask scheduler --scheduler-file FILE' writes, with an address"
    try:
        with open(file, encoding="utf-8") as stream:
            address = json.load(stream)["address"]
    except OSError as error:
        raise InfrastructureError(f"--scheduler-file {file}: {error.strerror}; is the scheduler running?") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(file, found="no address of a scheduler", expected=expected) from error
    if not isinstance(address, str):
        raise InputError(file, found=f"the address {address!r}", expected=expected)
    return address


@contextmanager
def run_in(workers: int | None, scheduler: str | None, memory: str | None = None) -> Iterator[Runner]:
    """The inline runner, or a cluster if the arguments ask for one; only then Dask is imported."""
    if workers is not None and scheduler is not None:
        raise UsageError("found --workers and --scheduler, expected one of them")
    if memory is not None and workers is None:
        raise UsageError(
            "found --memory without --workers; workers of a scheduler have their own limit: dask worker --memory-limit"
        )
    if workers is None and scheduler is None:
        from distagg.engine.runner import InlineRunner

        yield InlineRunner()
        return
    from distagg.engine.dask import local_cluster, remote_cluster
    from distagg.engine.worker_memory import parse_memory

    try:
        size = 0 if memory is None else parse_memory(memory)
    except UsageError as error:
        raise UsageError(f"--memory: {error}") from error
    with remote_cluster(scheduler) if scheduler is not None else local_cluster(workers or 0, size) as runner:
        yield runner


def say(text: str) -> None:
    """Print a message on stderr; names from files cannot change the terminal."""
    print(escaped(text, lines=True), file=sys.stderr)


PATH = click.Path()  # text for which shells complete names of files


class Argument(click.Argument):
    """A positional argument with its meaning in the help."""

    def __init__(self, name: str, *, help: str, **attributes: Any) -> None:
        super().__init__([name], **{"type": PATH, **attributes})
        self.help = help


def option(*names: str, **attributes: Any) -> click.Option:
    """An option; ``many=True`` may be repeated."""
    return click.Option(names, multiple=attributes.pop("many", False), **{"type": PATH, **attributes})


def flag(*names: str, help: str, **attributes: Any) -> click.Option:
    return click.Option(names, is_flag=True, help=help, **attributes)


@dataclass(frozen=True)
class Gathered:
    """Parameters that belong together: the command receives one value, which ``make`` builds from them."""

    name: str
    make: Callable[..., Any]
    params: tuple[click.Parameter, ...]
    section: str = "Options"  # of the command's help

    def take(self, values: dict[str, Any]) -> None:
        """Replace the parameters' values by the one value."""
        own = {param.name: values.pop(param.name) for param in self.params if param.name and param.expose_value}
        values[self.name] = self.make(**own)


def _seed(ctx: click.Context, param: click.Parameter, word: str | None) -> int | None:
    if word is not None and not (word.isascii() and word.isdigit() and int(word) < 2**63):
        raise click.BadParameter(f"found '{word}', expected a whole number of at least 0")
    return None if word is None else int(word)


DEBUG = flag("--debug", expose_value=False, help="print the traceback of an error (also: DISTAGG_DEBUG=1)")
EVERYWHERE = (
    flag("--json", help="print the result as JSON on stdout; messages go to stderr"),
    option(
        "--seed", callback=_seed, metavar="N", help="seed of all random numbers (default 0, or a saved model's seed)"
    ),
    DEBUG,
)
CLUSTER = (
    option("--workers", type=int, metavar="N", help="run on N local worker processes (default: in this process)"),
    option("--memory", metavar="SIZE", help="with --workers: memory of each, such as 4GB (default: no limit)"),
    option("--scheduler", metavar="ADDRESS", help="run on the Dask cluster at this address"),
    option("--scheduler-file", metavar="FILE", help="run on the Dask cluster whose scheduler wrote this file"),
)


class Command(click.Command):
    """A command. Its help explains its arguments, its options by section, and ends with examples."""

    def __init__(
        self,
        name: str,
        *,
        sections: Mapping[str, Sequence[click.Parameter]],
        examples: Sequence[str],
        **attributes: Any,
    ) -> None:
        params = [param for section in sections.values() for param in section]
        super().__init__(name, params=params, context_settings=CONTEXT, **attributes)
        self.sections, self.examples = sections, examples

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print nothing: ``format_options`` has the arguments, for versions of click that leave them out too."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        arguments = [param for param in self.params if isinstance(param, Argument)]
        _section(formatter, "Arguments", [(param.make_metavar(ctx), param.help) for param in arguments])
        for title, params in self.sections.items():
            _section(formatter, title, [p.get_help_record(ctx) for p in params if isinstance(p, click.Option)])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("\nExamples:\n" + "".join(f"  {line}\n" for line in self.examples))


def _section(formatter: click.HelpFormatter, title: str, rows: Sequence[Any]) -> None:
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows, col_max=24)


def command(
    name: str, *params: click.Parameter | Gathered, examples: Sequence[str], cluster: bool = True
) -> Callable[[Callable[..., None]], Command]:
    """Make a function a command: it gets a ``Call``, and the values of ``params`` by name."""
    call = Gathered("call", Call, (*EVERYWHERE, *CLUSTER) if cluster else EVERYWHERE, "Everywhere")
    groups = [param for param in (*params, call) if isinstance(param, Gathered)]
    sections: dict[str, list[click.Parameter]] = {"Options": []}
    for param in (*params, call):
        title, own = (param.section, param.params) if isinstance(param, Gathered) else ("Options", (param,))
        sections.setdefault(title, []).extend(own)

    def run(function: Callable[..., None], **values: Any) -> None:
        for group in groups:
            group.take(values)
        function(**values)

    def decorate(function: Callable[..., None]) -> Command:
        about = COMMANDS[name][1]
        return Command(
            name,
            sections=sections,
            callback=partial(run, function),
            help=about[0].upper() + about[1:] + ".",
            examples=examples,
        )

    return decorate


class Commands(click.Group):
    """``distagg`` itself: finds a command in its file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        if name not in COMMANDS:
            raise unknown("command", name, COMMANDS)
        found: click.Command = getattr(import_module(f"distagg.cli.{COMMANDS[name][0]}"), f"{name}_command")
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, rows in SECTIONS.items():
            _section(formatter, section, [(name, about) for name, (_, about) in rows.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"\n{EPILOG}\n")


def _print_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        print(f"distagg {distagg.__version__}")
        ctx.exit()


DISTAGG = Commands(
    "distagg",
    help="Combine partial, noisy, conflicting preferences into one ranking per query.",
    subcommand_metavar="COMMAND ...",
    context_settings=CONTEXT,
    no_args_is_help=False,
    params=[
        flag(
            "--version", expose_value=False, is_eager=True, callback=_print_version, help="print the version and exit"
        ),
        DEBUG,
    ],
)
