"""The estimate of an import's work is near the work that the import reports."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distagg.engine.importing import import_dataset
from distagg.sources.estimate import estimated_rows

RUN = "".join(f"q{n // 50} Q0 doc{n} {n % 50 + 1} {1000 - n}.5 bm25\n" for n in range(20_000))


def reported(kind: str, file: Path, target: Path) -> int:
    """Rows that an import says it has read and written."""
    done: list[int] = []
    import_dataset(kind, file, target, progress=done.append)
    return sum(done)


@pytest.mark.parametrize("name", ["a.run", "a.run.gz"])
def test_a_run(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(gzip.compress(RUN.encode()) if name.endswith("gz") else RUN.encode())
    assert reported("trec", file, tmp_path / "data") == 40_000
    assert estimated_rows([file], "trec") == pytest.approx(40_000, rel=0.15)


def test_letor_lines_hold_several_rows(tmp_path: Path) -> None:
    file = tmp_path / "A1.txt"
    lines = [f"{n % 3} qid:{n // 8} 1:NULL 2:{n % 8 + 1} 3:{8 - n % 8} #docid = d{n}\n" for n in range(80)]
    file.write_text("".join(lines), encoding="utf-8")
    assert estimated_rows([file], "letor") == reported("letor", file, tmp_path / "data") == 80 * 5


def test_a_table_knows_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "lists.parquet"
    pq.write_table(
        pa.table({"query": ["q"] * 4, "expert": ["a"] * 4, "item": list("wxyz"), "rank": [1, 2, 3, 4]}), file
    )
    assert estimated_rows([file], "rankings") == reported("rankings", file, tmp_path / "data") == 8


def test_what_tells_nothing_is_unknown(tmp_path: Path) -> None:
    empty, broken = tmp_path / "empty.run", tmp_path / "broken.parquet"
    empty.touch()
    broken.write_bytes(b"no table")
    assert estimated_rows([empty], "trec") == 0
    assert estimated_rows([broken], "rankings") == 0
    assert estimated_rows([tmp_path / "absent.run"], None) == 0
