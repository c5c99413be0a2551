"""Items without a label in queries that have some: what they are to models that learn from labels.

Retrieval runs are judged in pools: the first items of every run have labels, and most of the rest is not relevant.
``unjudged=zero`` takes such items as irrelevant, as every metric does; with ``ignore`` they teach nothing. A query
without any label teaches nothing either way.
"""

from __future__ import annotations

import numpy as np

from distagg.dataset.chunk import Chunk
from distagg.models.base import param
from distagg.models.pool import first_items
from distagg.models.rounds import kept
from distagg.types import LABEL, NO_LABEL, Bools, Labels

UNJUDGED = ("zero", "ignore")
MOST = 1000  # items of a large query that can count as irrelevant without a label


def unjudged_param(default: str, *, most: int = MOST) -> str:
    limit = f"; in a large query only those among its first {most:,} by reciprocal rank fusion" if most else ""
    return param(
        default,
        f"items without a label in queries that have labels: zero (they count as label 0{limit}) or ignore (they teach "
        "nothing)",
        choices=UNJUDGED,
    )


def labelled_queries(chunk: Chunk) -> Bools:
    """The queries that have a label, of a ranked item or of a missed one, (Q,)."""
    known = np.bincount(chunk.item_query(), chunk.labels != NO_LABEL, chunk.n_queries)
    return np.asarray((known > 0) | (np.diff(chunk.missed_offsets) > 0))


def training_labels(chunk: Chunk, unjudged: str, *, most: int = MOST) -> Labels:
    """Labels to learn from, shape (I,): negative ones are 0; items without a label have 0 or NO_LABEL.

    Of a query with more than ``most`` items, only the first ones have 0 for want of a label; 0 sets no limit.
    """
    if unjudged == "ignore" or not (chunk.labels == NO_LABEL).any():
        return chunk.grades()
    labels: Labels = kept(chunk, ("unjudged", most), lambda chunk: (_with_zeros(chunk, most),))[0]
    return labels


def _with_zeros(chunk: Chunk, most: int) -> Labels:
    counted: Bools = np.repeat(labelled_queries(chunk), np.diff(chunk.item_offsets))
    if most:
        counted &= first_items(chunk, most)
    labels = np.where((chunk.labels == NO_LABEL) & counted, LABEL(0), chunk.grades())
    labels.setflags(write=False)
    return labels
