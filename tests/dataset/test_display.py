"""Datasets at a prompt and in a notebook."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from distagg.dataset import Dataset, write_dataset
from distagg.dataset.frames import TableSource

TABLE = pa.table({"expert": ["<b>", "a"], "item": ["x", "y"], "score": [1.0, 2.0]})


def test_three_lines(tmp_path: Path) -> None:
    write_dataset(TableSource(TABLE), tmp_path / "d")
    dataset = Dataset.open(tmp_path / "d")
    assert repr(dataset).splitlines() == [
        "Dataset of lists: 1 query, 2 items, 2 experts, 2 entries",
        "experts: <b>, a",
        f"labels: none; with scores; {tmp_path / 'd'}",
    ]
    assert repr(dataset.select(without=["a"])).endswith(f"{tmp_path / 'd'}, a selection")
    battles = pa.table({"winner": ["x"] * 9, "loser": ["y"] * 9, "expert": list("abcdefghi")})
    assert repr(Dataset.from_arrow(battles)).splitlines()[:2] == [
        "Dataset of pairs: 1 query, 2 items, 9 experts, 9 pairs",
        "experts: a, b, c, d, e, f, g, h, ...",
    ]


def test_a_table_for_notebooks() -> None:
    page = Dataset.from_arrow(TABLE)._repr_html_()
    assert "<td style='text-align:left'>&lt;b&gt;, a</td>" in page
    assert page.count("<tr>") == 5
