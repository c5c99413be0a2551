"""The arguments of the commands about jobs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

Command = Callable[..., argparse.ArgumentParser]


def add_job_commands(commands: Any, command: Command) -> None:
    """Add run, plan, resume, status, report, doctor and warm."""

    def add(name: str, help: str, *, cluster: bool = False) -> argparse.ArgumentParser:
        parser = command(commands, name, help, cluster=cluster)
        parser.set_defaults(run=_late(name))
        return parser

    run = add("run", "run a job, or finish it; a finished job is not run again", cluster=True)
    _job(run)
    run.add_argument(
        "-o",
        "--output",
        metavar="RUN",
        help="the run directory (default: RUNS/NAME/KEY, where KEY is a hash of the job's inputs)",
    )
    run.add_argument("--schema", action="store_true", help="print the JSON schema of job files and exit")
    _job(add("plan", "estimate a job's chunks, memory and time; writes nothing", cluster=True))
    _run(add("resume", "resume a run that stopped", cluster=True))
    _run(add("status", "show the state of a run"))
    _run(add("report", "write report.html of a run again"))
    doctor = add("doctor", "check that this machine can run distagg")
    doctor.add_argument("--no-cluster", action="store_true", help="do not start a worker")
    warm = add("warm", "compile the models' kernels into this user's cache")
    warm.add_argument(
        "models", nargs="*", metavar="MODEL", help="models to compile for (default: all, with metrics and completions)"
    )


def _job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", metavar="JOB.toml")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="such as steps.ranked.model=borda")
    _intermix(parser)


def _intermix(parser: argparse.ArgumentParser) -> None:
    """Allow options between the job and its overrides: argparse would otherwise reject the overrides."""
    plain = parser.parse_known_args

    def parse(args: Any = None, namespace: Any = None) -> Any:
        parser.parse_known_args = plain  # type: ignore[method-assign]
        try:
            return parser.parse_known_intermixed_args(args, namespace)
        finally:
            parser.parse_known_args = parse  # type: ignore[method-assign]

    parser.parse_known_args = parse  # type: ignore[method-assign]


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUN", help="a run directory, or 'latest' of a job's runs")


def _late(name: str) -> Callable[[argparse.Namespace], None]:
    def run(arguments: argparse.Namespace) -> None:
        getattr(import_module("distagg.cli.jobs"), f"{name}_command")(arguments)

    return run
