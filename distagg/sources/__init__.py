"""Sources: readers of input files. ``SOURCES`` has those of ``distagg import`` by name.

``SyntheticSource`` is not imported here, because it needs scipy, which loads slower than most imports run.
"""

from __future__ import annotations

from collections.abc import Callable

from distagg.sources.letor import LetorSource
from distagg.sources.observed_pairs import PairsSource
from distagg.sources.published import BeirSource
from distagg.sources.ranked_lists import RankingsSource
from distagg.sources.ratings import RatingsSource
from distagg.sources.source import Source, SourceTable
from distagg.sources.trec import TrecSource

SOURCES: dict[str, Callable[..., Source]] = {
    "letor": LetorSource,
    "trec": TrecSource,
    "ratings": RatingsSource,
    "rankings": RankingsSource,
    "pairs": PairsSource,
    "beir": BeirSource,
}

__all__ = [
    "SOURCES",
    "BeirSource",
    "LetorSource",
    "PairsSource",
    "RankingsSource",
    "RatingsSource",
    "Source",
    "SourceTable",
    "TrecSource",
]
