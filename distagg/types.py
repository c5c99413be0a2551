"""Every dtype and table schema, in one place.

Ranks and scores are float64: ratings, fractional ranks and positions beyond 2**24 all stay exact.
Item positions are int32 because they count items *inside one query*; offsets are int64 because they
count entries of a whole chunk. Labels are int32, with ``NO_LABEL`` in memory where a table has null.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

OFFSET = np.int64
INDEX = np.int32
RANK = np.float64
LABEL = np.int32
NO_LABEL = int(np.iinfo(np.int32).min)

Offsets = NDArray[np.int64]
Indices = NDArray[np.int32]
Floats = NDArray[np.float64]
Labels = NDArray[np.int32]
Bools = NDArray[np.bool_]
Times = NDArray[np.int64]  # microseconds since 1970, UTC

SCHEMA_VERSION = 1
TIMESTAMP = pa.timestamp("us", "UTC")

# The tables of sources: long tables, in the order of the source. An entry with a score and a null rank is
# ranked by score when its list is complete: rank = 1 + number of strictly larger scores.
ENTRIES = pa.schema(
    [
        ("query", pa.string()),
        ("expert", pa.string()),
        ("item", pa.string()),
        ("rank", pa.float64()),
        ("score", pa.float64()),
    ]
)
ITEMS = pa.schema([("query", pa.string()), ("item", pa.string()), ("label", pa.int32())])
# Tables of pairs may have more columns: ``time``, and float64 columns of covariates (``distagg.covariates``).
PAIRS = pa.schema(
    [
        ("query", pa.string()),
        ("expert", pa.string()),
        ("winner", pa.string()),
        ("loser", pa.string()),
        ("weight", pa.float64()),
        ("tie", pa.bool_()),
    ]
)

# The tables of a dataset on disk. ``query`` in lists and pairs is the query's position in the dataset,
# ``item`` (and winner, loser) the item's position in its query, ``expert`` a row of experts.parquet.
QUERIES_TABLE = pa.schema(
    [
        ("query", pa.string()),
        ("part", pa.string()),
        ("item", pa.list_(pa.string())),
        ("label", pa.list_(pa.int32())),
        ("missed", pa.list_(pa.int32())),
    ]
)
LISTS_TABLE = pa.schema(
    [
        ("query", pa.int64()),
        ("expert", pa.int32()),
        ("item", pa.list_(pa.int32())),
        ("rank", pa.list_(pa.float64())),
        ("score", pa.list_(pa.float64())),
    ]
)
# After these columns of pairs come, in datasets that have them: ``time``; ``order``, the row's position in the source,
# if grouping by expert has moved rows; and the covariates.
PAIRS_TABLE = pa.schema(
    [
        ("query", pa.int64()),
        ("expert", pa.int32()),
        ("winner", pa.int32()),
        ("loser", pa.int32()),
        ("weight", pa.float64()),
        ("tie", pa.bool_()),
    ]
)
PAIR_TIME, PAIR_ORDER = pa.field("time", TIMESTAMP), pa.field("order", pa.int64())
RANKINGS_TABLE = pa.schema(
    [("query", pa.string()), ("item", pa.string()), ("rank", pa.int32()), ("score", pa.float64())]
)
