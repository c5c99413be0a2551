"""The simple models against pandas, polars, ranx and pyflagr on the same synthetic lists: answers, speed, growth.

    python jobs/bench/models.py --peers-python .venv-peers/bin/python [--quick] [--json]

Every contestant is a process; turns alternate, so that all meet the same machine. See README.md for what is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import growth
from answers import Agreements, compare_complete
from contest import MODELS, PEERS, Field, Player, Slot, play
from goals import Row, print_rows, print_table
from lists import export, make_dataset

from distagg.sources.synthetic import SyntheticSource

WHOLE = ("rrf", "borda", "median", "condorcet", "mc4")
ANSWERS_IDS = ("ranx", "pyflagr")  # their rankings name items by id, so ours do too once files are read
TOO_SLOW = 20.0  # seconds of one call, after which a peer is not asked the same with reading


@dataclass(frozen=True)
class Sizes:
    queries: dict[str, int]  # by shape
    rounds: int
    whole_rounds: int
    budget: float


FULL = Sizes({"mq2008": 800, "mq2007": 1700}, rounds=9, whole_rounds=3, budget=12.0)
QUICK = Sizes({"mq2008": 80}, rounds=3, whole_rounds=1, budget=2.0)


def match(model: str, case: str) -> bool:
    """Whether a peer's case ("rrf", "rrf lazy") is of the model; "borda average" is a model of its own."""
    return case == model or (case.startswith(model + " ") and case not in MODELS)


class Contest:
    """One dataset, ours and the peers on it."""

    def __init__(self, folder: Path, data: str, sizes: Sizes, field: Field, stack: ExitStack) -> None:
        self.folder, self.data, self.sizes = folder, data, sizes
        self.ours = stack.enter_context(Player(sys.executable, "ours", folder))
        self.peers = [stack.enter_context(player) for player in field.players(folder)]
        for player in (self.ours, *self.peers):
            say(f"{data}: {player.name} loads")
            player.ask("load")
        self.agreements = Agreements(folder)
        self.rows: list[Row] = []

    def model(self, model: str) -> None:
        """All three stages of one model."""
        cases = [(peer, case) for peer in self.peers for case in peer.cases if match(model, case)]
        say(f"{self.data}: {model} against {len(cases)} cases")
        self.ours.ask("warm", case=model)
        self.ours.ask("warm", case=f"{model} ids")
        for peer, case in cases:
            peer.ask("warm", case=case)
        scores = self.ours.rows(model, self.folder / "rows.json")["score"]
        same = {}
        for peer, case in cases:
            unsorted = case.endswith("unsorted")
            same[peer.name, case] = (
                "-" if unsorted else self.agreements.of(scores, peer.rows(case, self.folder / "rows.json"))
            )
        slow = self._stage("compute", model, cases, same)
        cases = [
            (peer, case) for peer, case in cases if not case.endswith("unsorted") and (peer.name, case) not in slow
        ]
        self._stage("read", model, cases, same)
        if model in WHOLE:
            self._whole(model, [(peer, case) for peer, case in cases if case == model], same)

    def _stage(
        self, stage: str, model: str, cases: list[tuple[Player, str]], same: dict[tuple[str, str], str]
    ) -> set[tuple[str, str]]:
        """Times one stage; gives the cases that are too slow to go on with."""
        plain, ids = Slot(self.ours, model, stage), Slot(self.ours, f"{model} ids", stage)
        theirs = [Slot(peer, case, stage) for peer, case in cases]
        play([plain, ids, *theirs], self.sizes.rounds, self.sizes.budget)
        slow = set()
        for slot in theirs:
            name, how = slot.player.name, slot.case.removeprefix(model).strip()
            with_ids = how == "strings" or (stage == "read" and name in ANSWERS_IDS)
            ours = ids if with_ids else plain
            self.rows.append(Row(self.data, stage, model, name, how, ours.spread, slot.spread, same[name, slot.case]))
            if slot.spread.median > TOO_SLOW:
                slow.add((name, slot.case))
        return slow

    def _whole(self, model: str, cases: list[tuple[Player, str]], same: dict[tuple[str, str], str]) -> None:
        cache = {"DISTAGG_CACHE_DIR": str(self.folder / "kernels-ours")}
        kept = Slot(self.ours, model, "whole", cache)
        kept.player.whole_seconds(model, kept.env)  # fills the cache
        fresh = Slot(self.ours, model, "whole", {"DISTAGG_CACHE": "0"})
        theirs = [Slot(peer, case, "whole") for peer, case in cases]
        first = []
        for slot in theirs:
            if slot.player.name == "ranx" and model == "rrf" and self.sizes is FULL:
                first = [Slot(slot.player, model, "whole", {"NUMBA_CACHE_DIR": str(self.folder / "numba-none")})]
        play([fresh, kept, *theirs], self.sizes.whole_rounds, self.sizes.budget)
        play(first, 1, self.sizes.budget)
        for ours, how in ((fresh, ""), (kept, "(our kernels cached)")):
            for slot in theirs:
                name = slot.player.name
                self.rows.append(
                    Row(self.data, "whole", model, name, how, ours.spread, slot.spread, same[name, slot.case])
                )
        for slot in first:
            self.rows.append(
                Row(self.data, "whole", model, "ranx", "(first time)", fresh.spread, slot.spread, same["ranx", model])
            )

    def limit(self) -> dict[str, Any]:
        """Reading two columns and nothing else, beside rrf with reading."""
        slots = {case: Slot(self.ours, case, "read") for case in ("limit", "flat limit", "rrf", "rrf ids")}
        play(list(slots.values()), self.sizes.rounds, self.sizes.budget)
        return {"data": self.data} | {case: asdict(slot.spread) for case, slot in slots.items()}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(folder: Path, sizes: Sizes, field: Field, seed: int) -> dict[str, Any]:
    rows: list[Row] = []
    limits, data = [], {}
    for shape, queries in sizes.queries.items():
        where = folder / shape
        dataset = make_dataset(where, SyntheticSource(queries, shape=shape, seed=seed))
        export(where)
        name = f"{shape}-like"
        data[name] = {key: dataset.info()[key] for key in ("queries", "items", "experts", "entries")}
        with ExitStack() as stack:
            contest = Contest(where, name, sizes, field, stack)
            for model in field.models:
                contest.model(model)
            limits.append(contest.limit())
            rows += contest.rows
    base = None if sizes is FULL else {"queries": 50, "items": 20, "experts": 25}
    say("answers on complete lists")
    complete = compare_complete(folder / "complete", field, seed)
    say("growth")
    grown = growth.measure(folder / "growth", rounds=sizes.rounds, seed=seed, base=base)
    return {
        "data": data,
        "cores": os.cpu_count(),
        "seed": seed,
        "rows": rows,
        "complete": complete,
        "limits": limits,
        "growth": grown,
    }


def print_result(result: dict[str, Any]) -> None:
    for name, counts in result["data"].items():
        print(name + ": " + ", ".join(f"{number:,} {what}" for what, number in counts.items()))
    print_rows(result["rows"])
    print("\nAnswers on complete lists: share of queries ranked the same up to ties; tau where that is not all")
    print_table(["model", "peer", "same answer"], [list(row.values()) for row in result["complete"]])
    print("\nThe limit: reading the columns item and rank with pyarrow on one thread; medians, milliseconds")
    for row in result["limits"]:
        limit, flat, plain, ids = (row[case]["median"] * 1e3 for case in ("limit", "flat limit", "rrf", "rrf ids"))
        print(
            f"{row['data']}: limit {limit:.2f} (of the flat file {flat:.2f}); rrf with reading {plain:.2f}, "
            f"{plain / limit:.1f} times the limit; with a table of ids {ids:.2f}, {ids / limit:.1f} times"
        )
    growth.print_growth(result["growth"])


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers-python", required=True, help="the interpreter of an environment with peers.txt")
    parser.add_argument(
        "--quick", action="store_true", help="small data, few repetitions: does it run, do answers agree"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write everything measured to this file, too")
    parser.add_argument("--models", type=_names, default=MODELS, help="only these, with commas between")
    parser.add_argument("--peers", type=_names, default=PEERS, help="only these, with commas between")
    arguments = parser.parse_args()
    for name in (*arguments.models, *arguments.peers):
        if name not in (*MODELS, *PEERS):
            parser.error(f"no model or peer '{name}'; there are {', '.join((*MODELS, *PEERS))}")
    field = Field(arguments.peers_python, arguments.peers, arguments.models)
    sizes = QUICK if arguments.quick else FULL
    with tempfile.TemporaryDirectory(prefix="distagg-bench-") as folder:
        result = measure(Path(folder), sizes, field, arguments.seed)
    print_result(result)
    if arguments.json:
        plain = result | {"rows": [row.as_dict() for row in result["rows"]]}
        arguments.json.write_text(json.dumps(plain, indent=1))


if __name__ == "__main__":
    main()
