"""The command line: parse, call, print, and turn errors into exit codes.

0 done, 1 finished but not converged, 2 wrong usage, 3 bad input, 4 infrastructure, 130 / 143 interrupted.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import warnings
from collections.abc import Sequence

from distagg.cli.parser import build_parser
from distagg.errors import DistaggError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    arguments = build_parser().parse_args(argv)
    talk = logging.StreamHandler(sys.stderr)
    log = logging.getLogger("distagg")
    log.addHandler(talk)
    log.setLevel(logging.INFO)
    try:
        return _run(arguments)
    finally:
        log.removeHandler(talk)


def _run(arguments: argparse.Namespace) -> int:
    from distagg.models.base import NotConvergedWarning

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NotConvergedWarning)
            arguments.run(arguments)
            sys.stdout.flush()
    except DistaggError as error:
        print(f"distagg: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as stop:
        print("distagg: interrupted; nothing half-written is left", file=sys.stderr)
        return 143 if stop.args == ("SIGTERM",) else 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"distagg: {error}; free space or fix the path, then run again", file=sys.stderr)
        return 4
    unfinished = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, NotConvergedWarning))
    for message in unfinished:
        print(f"distagg: warning: {message}", file=sys.stderr)
    return 1 if unfinished else 0


def _terminated(number: int, frame: object) -> None:
    raise KeyboardInterrupt("SIGTERM")


if __name__ == "__main__":
    sys.exit(main())
