"""Sources: what reads other people's files. ``SOURCES`` names those that ``distagg import`` knows.

``SyntheticSource`` stays in its module: it needs scipy, which takes longer to load than most imports take to run.
"""

from __future__ import annotations

from collections.abc import Callable

from distagg.sources.letor import LetorSource
from distagg.sources.pairs import PairsSource
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
}

__all__ = [
    "SOURCES",
    "LetorSource",
    "PairsSource",
    "RankingsSource",
    "RatingsSource",
    "Source",
    "SourceTable",
    "TrecSource",
]
