"""Rankings on disk, in each format, read back and refused when broken."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distagg.errors import InputError
from distagg.rankings.files import as_csv, as_trec
from distagg.types import RANKINGS_TABLE


def made(query: str = "q", item: str = "x") -> pa.Table:
    return pa.Table.from_pylist([{"query": query, "item": item, "rank": 1, "score": 1 / 3}], RANKINGS_TABLE)


def test_scores_survive_as_text():
    assert float(as_trec(made(), "rrf").split()[4]) == 1 / 3
    assert as_trec(made(), "rrf") == b"q Q0 x 1 0.3333333333333333 rrf\n"


def test_ids_with_white_space_have_no_trec_form():
    with pytest.raises(InputError, match="white space"):
        as_trec(made(item="two words"), "rrf")


@given(st.lists(st.floats() | st.integers(-(10**18), 10**18).map(float) | st.sampled_from([1e-4, 1e9, 1e10, 1e16])))
def test_scores_are_written_as_python_writes_them(scores: list[float]) -> None:
    table = pa.table({"score": pa.array(scores, pa.float64())})
    assert as_csv(table, header=False).decode().split() == [repr(score) for score in scores]


def test_no_rows_are_no_lines() -> None:
    assert as_trec(made().slice(0, 0), "rrf") == b""
    assert as_trec(pa.concat_tables([made(), made()]).slice(1), "rrf") == as_trec(made(), "rrf")
