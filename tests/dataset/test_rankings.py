"""Rankings on disk, in each format, read back and refused when broken."""

import pyarrow as pa
import pytest

from distagg.dataset.rankings import as_trec
from distagg.errors import InputError
from distagg.types import RANKINGS_TABLE


def made(query: str = "q", item: str = "x") -> pa.Table:
    return pa.Table.from_pylist([{"query": query, "item": item, "rank": 1, "score": 1 / 3}], RANKINGS_TABLE)


def test_scores_survive_as_text():
    assert float(as_trec(made(), "rrf").split()[4]) == 1 / 3
    assert as_trec(made(), "rrf") == b"q Q0 x 1 0.3333333333333333 rrf\n"


def test_ids_with_white_space_have_no_trec_form():
    with pytest.raises(InputError, match="white space"):
        as_trec(made(item="two words"), "rrf")
