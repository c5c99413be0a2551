"""BioConsert of corankco, in its own interpreter: python bioconsert.py LISTS.json ORDERS.json

For every line on stdin it solves all queries once more and prints the seconds that took, building its input included.
Orders are written after the first time: for each query the places of its items, equal where the consensus ties them.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from corankco.algorithms.bioconsert.bioconsert import BioConsert
from corankco.dataset import Dataset
from corankco.ranking import Ranking
from corankco.scoringscheme import ScoringScheme

# Plain Kemeny distance with unlisted items last: x before y costs 1 where the list has y over x, or lists y alone.
# A tie in the consensus costs 1 wherever the list orders the two, so it never pays.
SCHEME = ScoringScheme([[0.0, 1.0, 0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0, 1.0, 0.0]])


def solve(queries: list[dict[str, Any]]) -> list[Any]:
    algorithm = BioConsert()
    found = []
    for query in queries:
        dataset = Dataset([Ranking([{item} for item in items]) for items in query["lists"]])
        found.append(algorithm.compute_consensus_rankings(dataset, SCHEME, True))
    return found


def main() -> None:
    queries = json.loads(Path(sys.argv[1]).read_text())
    solve(queries[:2])  # compiles
    for n, _ in enumerate(sys.stdin):
        start = time.perf_counter()
        found = solve(queries)
        seconds = time.perf_counter() - start
        if n == 0:
            places = []
            for query, consensus in zip(queries, found, strict=True):
                place = [query["size"]] * query["size"]  # items in no list are unknown to it: they stand last
                for at, bucket in enumerate(consensus.consensus_rankings[0].buckets):
                    for element in bucket:
                        place[int(element.value)] = at
                places.append(place)
            Path(sys.argv[2]).write_text(json.dumps(places))
        print(seconds, flush=True)


if __name__ == "__main__":
    main()
