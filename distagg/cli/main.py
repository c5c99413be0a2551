"""The command line: parse, call, print, and turn errors into exit codes.

0 done, 1 finished but not converged, 2 wrong usage, 3 bad input, 4 infrastructure, 70 a bug in distagg, 130 / 143
interrupted. ``main`` imports everything but the lightest modules of the standard library, so that an interruption
during start-up also ends with its exit code.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

BUG = 70  # EX_SOFTWARE of sysexits.h
_signals: list[int] = []  # received, that asked this command to stop


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words or os.environ.get("DISTAGG_DEBUG", "0") not in ("", "0")
    try:
        _open_standard_streams()
        _watch_signals()
        return _run(words)
    except BaseException as error:  # also those that some extension modules raise in a panic
        if debug:
            _print_traceback(error)
        return _explain(error)


def _run(words: list[str]) -> int:
    import logging
    import warnings

    import click

    from distagg.cli.commands import DISTAGG
    from distagg.errors import NotConvergedWarning, one_line

    class _OneLine(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return one_line(super().format(record))

    if "_DISTAGG_COMPLETE" in os.environ:  # set by the script that 'distagg --help' names
        from click.shell_completion import shell_complete

        return shell_complete(DISTAGG, {}, "distagg", "_DISTAGG_COMPLETE", os.environ["_DISTAGG_COMPLETE"])
    talk = logging.StreamHandler(sys.stderr)
    talk.setFormatter(_OneLine())
    log = logging.getLogger("distagg")
    log.addHandler(talk)
    log.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NotConvergedWarning)
            with DISTAGG.make_context("distagg", words) as context:
                DISTAGG.invoke(context)
            sys.stdout.flush()
    except click.exceptions.Exit as end:  # of --help and --version
        sys.stdout.flush()  # a closed pipe raises here, not when Python ends
        return end.exit_code
    except click.UsageError as error:
        return _explain_usage(error)
    finally:
        log.removeHandler(talk)
    unfinished = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, NotConvergedWarning))
    for message in unfinished:
        _say(one_line(f"warning: {message}"))
    return 1 if unfinished else 0


def _explain_usage(error: click.UsageError) -> int:
    """Print on stderr how the command is called and what was wrong; returns the exit code."""
    from distagg.errors import one_line

    if error.ctx is not None:
        _say(f"{error.ctx.get_usage()}\nhelp: {error.ctx.command_path} --help", "")
    _say(one_line(error.format_message()))
    return 2


def _explain(error: BaseException) -> int:
    """Print on stderr what ended the command; returns the exit code."""
    from distagg.errors import FOUND, DistaggError, cut, one_line

    if (
        isinstance(error, KeyboardInterrupt) or _signals
    ):  # extension modules turn an interrupt during import into an ImportError
        _say("interrupted; no incomplete output was left")
        return 143 if signal.SIGTERM in _signals else 130
    if isinstance(error, DistaggError):
        _say(one_line(str(error)))
        return error.exit_code
    if isinstance(error, BrokenPipeError) and _stdout_is_broken():
        return 0  # the reader of the pipe has read enough
    if isinstance(error, MemoryError):
        _say(one_line(f"out of memory ({error or 'no details'}); use smaller chunks or fewer workers, then run again"))
        return 4
    if isinstance(error, OSError):
        _say(one_line(f"{error}; free space or fix the path, then run again"))
        return 4
    what = cut(f"{type(error).__name__}: {str(error) or 'no message'}", FOUND)
    _say(one_line(f"this is a bug in distagg: {what}; --debug or DISTAGG_DEBUG=1 prints the traceback"))
    return BUG


def _stdout_is_broken() -> bool:
    """Whether stdout is a pipe without a reader; then redirect it to /dev/null, so Python's last flush succeeds."""
    import select

    poll = select.poll()
    poll.register(1, 0)
    broken = any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    if broken:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return broken


def _open_standard_streams() -> None:
    """Open closed standard streams (``>&-``) as /dev/null: otherwise the next file opened would get their number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _print_traceback(error: BaseException) -> None:
    import traceback

    _say("the traceback:\n" + "".join(traceback.format_exception(error)).rstrip())


def _say(text: str, prefix: str = "distagg: ") -> None:
    from distagg.errors import escaped

    try:
        print(escaped(f"{prefix}{text}", lines=True), file=sys.stderr)
    except OSError:  # stderr is closed; the exit code still tells the error
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _watch_signals() -> None:
    _signals.clear()
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise SIGINT is ignored, as under nohup
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: object) -> None:
    _signals.append(number)
    raise KeyboardInterrupt(*(["SIGTERM"] if number == signal.SIGTERM else []))


if __name__ == "__main__":
    sys.exit(main())
