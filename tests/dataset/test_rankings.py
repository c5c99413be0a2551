"""Rankings on disk, in each format, read back and refused when broken."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from distagg.dataset.rankings import as_trec, read_rankings
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


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.run", "q Q0 x 1 0.5 t\nq Q0 y\n", ":2:"),
        ("r.run", "q Q0 x 1 high t\n", ":1:"),
        ("r.run", "q Q0 x 1 nan t\n", "finite"),
        ("r.csv", "topic,item,rank\nq,x,1\n", "expected query, item"),
        ("r.csv", "query,item,rank\nq,x,1,2,3\n", "found"),
        ("r.parquet", "not parquet", "unreadable"),
    ],
)
def test_broken_rankings_are_refused(name: str, content: str, said: str, tmp_path: Path):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said):
        read_rankings(tmp_path / name)


def test_an_unfinished_directory_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="_SUCCESS"):
        read_rankings(tmp_path)
    with pytest.raises(InputError, match="nothing there"):
        read_rankings(tmp_path / "absent")


def test_trec_order_is_by_score(tmp_path: Path):
    (tmp_path / "r.run").write_text("q Q0 x 1 0.5 t\nq Q0 y 2 0.9 t\n")
    assert np.argmax(read_rankings(tmp_path / "r.run")["score"].to_numpy()) == 1
