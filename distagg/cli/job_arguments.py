"""Arguments of the commands about jobs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

Command = Callable[..., argparse.ArgumentParser]


def add_job_commands(commands: Any, command: Command) -> None:
    """run, plan, resume, status, report, doctor, warm."""

    def add(name: str, help: str, *, cluster: bool = False) -> argparse.ArgumentParser:
        parser = command(commands, name, help, cluster=cluster)
        parser.set_defaults(run=_late(name))
        return parser

    run = add("run", "run a job, or what is left of it; a finished one is left as it is", cluster=True)
    _job(run)
    run.add_argument(
        "-o", "--output", metavar="RUN", help="the run directory (default: RUNS/NAME/KEY, by what the job depends on)"
    )
    run.add_argument("--schema", action="store_true", help="print the JSON schema of job files and stop")
    _job(add("plan", "what a job would take: chunks, memory and time; nothing is written", cluster=True))
    _run(add("resume", "go on with a run that stopped", cluster=True))
    _run(add("status", "how a run stands"))
    _run(add("report", "draw report.html of a run again"))
    doctor = add("doctor", "whether this machine can do what will be asked of it")
    doctor.add_argument("--no-cluster", action="store_true", help="do not start a worker")
    warm = add("warm", "compile what models need, and keep it for this user's next processes")
    warm.add_argument("models", nargs="*", metavar="MODEL", help="default: all of them, metrics and completions")


def _job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", metavar="JOB.toml")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="such as steps.ranked.model=borda")
    _intermix(parser)


def _intermix(parser: argparse.ArgumentParser) -> None:
    """Let options stand between the job and its overrides: argparse would take the overrides for strangers."""
    plain = parser.parse_known_args

    def parse(args: Any = None, namespace: Any = None) -> Any:
        parser.parse_known_args = plain  # type: ignore[method-assign]
        try:
            return parser.parse_known_intermixed_args(args, namespace)
        finally:
            parser.parse_known_args = parse  # type: ignore[method-assign]

    parser.parse_known_args = parse  # type: ignore[method-assign]


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUN", help="a run directory, or the pointer 'latest' to one")


def _late(name: str) -> Callable[[argparse.Namespace], None]:
    def run(arguments: argparse.Namespace) -> None:
        getattr(import_module("distagg.cli.jobs"), f"{name}_command")(arguments)

    return run
