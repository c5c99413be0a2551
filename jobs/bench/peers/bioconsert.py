"""BioConsert of corankco, in its own interpreter: python bioconsert.py LISTS.json ORDERS.json

For every line on stdin it solves all queries once more and prints the seconds that took, building its input included.
Orders are written after the first time: for each query the places of its items, equal where the consensus ties them,
first those of its answer and then those of every local optimum that it reached. (7.2 adds up the distances of its
starts wrongly, two branches of _bio_consert having the same condition, so its answer is not always the best of them.)
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
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


def optima(query: dict[str, Any]) -> list[list[int]]:
    """Places of the items in every local optimum, by the steps of compute_consensus_rankings."""
    algorithm = BioConsert()
    dataset = Dataset([Ranking([{item} for item in items]) for items in query["lists"]])
    starts = algorithm._departure_rankings(dataset, SCHEME)
    size, flat = dataset.nb_elements, np.array(starts.flatten(), dtype=np.int32)
    costs = algorithm.pairwise_cost_matrix(dataset.get_positions(), SCHEME).flatten()
    algorithm._bio_consert(flat, costs, size, len(starts), np.zeros(len(starts)))
    places = np.full((len(starts), query["size"]), query["size"])
    places[:, [int(dataset.mapping_id_elem[e].value) for e in range(size)]] = flat.reshape(-1, size)
    found: list[list[int]] = places.tolist()
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
                places.append([place, *optima(query)])
            Path(sys.argv[2]).write_text(json.dumps(places))
        print(seconds, flush=True)


if __name__ == "__main__":
    main()
