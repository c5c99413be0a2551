"""One contestant in a process of its own, doing what it is told, a line of JSON each way.

    python serve.py MODULE FOLDER            commands on stdin
    python serve.py MODULE FOLDER --once CASE   what a user's script does: import, read, compute, end

MODULE is one of the files here; its ``Contestant`` has ``cases`` and the methods below. Needs nothing but the standard
library and what MODULE imports, so that it runs in the peers' environment and in ours.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

TURN_SECONDS, MOST_CALLS = 0.05, 10  # a turn repeats a quick call: the first after a pause finds cold caches


class Contestant(Protocol):
    cases: tuple[str, ...]  # compute only: those that end in "unsorted"

    def load(self) -> None:
        """Bring the lists into memory, as ``compute`` wants them."""

    def warm(self, case: str) -> None:
        """Compile what ``compute`` and ``read`` compile."""

    def compute(self, case: str) -> Any:
        """Rankings from the lists in memory."""

    def read(self, case: str) -> Any:
        """Rankings from the file."""

    def whole(self, case: str) -> Any:
        """Rankings from the file, as a user's script would get them."""

    def rows(self, result: Any) -> dict[str, list[Any]]:
        """Rankings as columns query and item (codes), or item_id."""


def turn(call: Callable[[], Any]) -> list[float]:
    """Seconds of each of a few calls."""
    taken: list[float] = []
    while not taken or (sum(taken) < TURN_SECONDS and len(taken) < MOST_CALLS):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return taken


def obey(contestant: Contestant, command: dict[str, str]) -> dict[str, Any]:
    what, case = command["do"], command.get("case", "")
    if what == "load":
        contestant.load()
        return {}
    if what == "cases":
        return {"cases": contestant.cases}
    if what == "warm":
        contestant.warm(case)
        return {}
    if what == "rows":
        Path(command["file"]).write_text(json.dumps(contestant.rows(contestant.compute(case))))
        return {}
    call = {"compute": contestant.compute, "read": contestant.read}[what]
    return {"seconds": turn(lambda: call(case))}


def main(arguments: list[str]) -> None:
    # pyflagr prints a line for each query: keep the real stdout for replies, and send the rest nowhere.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    contestant: Contestant = importlib.import_module(arguments[0]).Contestant(Path(arguments[1]))
    if len(arguments) == 4:
        contestant.whole(arguments[3])
        return
    for line in sys.stdin:
        print(json.dumps(obey(contestant, json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
