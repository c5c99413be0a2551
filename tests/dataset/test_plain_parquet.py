"""A rankings directory reads as one plain Parquet table in other programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from distagg.engine.rank_incremental import Earlier, Recipe
from distagg.engine.read_rankings import read_rankings
from distagg.rankings.files import publish_directory, write_part
from distagg.storage.sealed import sealed
from distagg.types import RANKINGS_TABLE


def in_duckdb(folder: Path) -> pa.Table:
    duckdb = pytest.importorskip("duckdb")
    return pa.table(duckdb.sql(f"select * from read_parquet('{folder}/*.parquet') order by query, rank"))


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "pandas": lambda folder: pa.Table.from_pandas(pd.read_parquet(folder), preserve_index=False),
    "polars": lambda folder: pl.read_parquet(folder / "*.parquet").to_arrow(),
    "polars, lazily": lambda folder: pl.scan_parquet(f"{folder}/*.parquet").collect().to_arrow(),
    "pyarrow": lambda folder: pyarrow.dataset.dataset(folder).to_table(),
    "pyarrow.parquet": lambda folder: pq.read_table(folder),
    "duckdb": in_duckdb,
}


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rankings with fits, in two parts, of which one was ranked twice."""
    folder = tmp_path_factory.mktemp("plain")
    parts = []
    for index in (0, 1, 1):
        rows = [{"query": f"q{index}", "item": item, "rank": n + 1, "score": -n / 3} for n, item in enumerate("abc")]
        table = pa.Table.from_pylist(rows, RANKINGS_TABLE)
        fits = pa.table({"query": [f"q{index}"], "converged": [True], "steps": [7]})
        parts.append(write_part(table, folder, index, "parquet", "mpm", fits=fits))
    publish_directory(folder, parts[:2], {"model": "mpm"})
    (folder / "_SUCCESS").touch()
    return folder


@pytest.mark.parametrize("reader", READERS)
def test_rows_of_the_ranking_and_nothing_else(reader: str, ranked: Path) -> None:
    found = READERS[reader](ranked)
    assert found.column_names == RANKINGS_TABLE.names
    assert found.to_pylist() == read_rankings(ranked).to_pylist()
    assert len(found) == 6


@pytest.mark.parametrize("reader", READERS)
def test_a_single_empty_part(reader: str, tmp_path: Path) -> None:
    part = write_part(RANKINGS_TABLE.empty_table(), tmp_path, 0, "parquet", "rrf")
    publish_directory(tmp_path, [part], {"model": "rrf"})
    (tmp_path / "_SUCCESS").touch()
    found = READERS[reader](tmp_path)
    assert (found.column_names, len(found)) == (RANKINGS_TABLE.names, 0)
    assert read_rankings(tmp_path).equals(RANKINGS_TABLE.empty_table())


def test_fits_are_a_table_of_their_own(ranked: Path) -> None:
    fits = pd.read_parquet(ranked / "_fits")
    assert fits["query"].tolist() == ["q0", "q1"]
    names = sorted(str(file.relative_to(ranked)) for file in ranked.rglob("*") if file.is_file())
    parts = ["part-00000.parquet", "part-00001.parquet"]
    assert names == ["_SUCCESS", "_fits/fits-00000.parquet", "_fits/fits-00001.parquet", "_manifest.json", *parts]


def test_directories_with_fits_beside_the_parts_are_read(ranked: Path, tmp_path: Path) -> None:
    """As older versions of the format have them."""
    expected = read_rankings(ranked)
    body = json.loads((ranked / "_manifest.json").read_text())
    for file in (*body["files"], *body["fits"]):
        name = Path(file["path"]).name
        (tmp_path / name).write_bytes((ranked / file["path"]).read_bytes())
        file["path"] = name
    (tmp_path / "manifest.json").write_bytes(sealed(body))
    (tmp_path / "_SUCCESS").touch()
    assert read_rankings(tmp_path).equals(expected)


def test_earlier_fits_are_taken_over(ranked: Path, tmp_path: Path) -> None:
    body = json.loads((ranked / "_manifest.json").read_text())
    rows = [
        {"blocks": [str(n)], "notes": [], "ranking": ranking, "fits": fits, "columns": ["query"], "unfinished": 0}
        for n, (ranking, fits) in enumerate(zip(body["files"], body["fits"], strict=True))
    ]
    earlier = Earlier(ranked, Recipe({}, [["0"], ["1"]]), rows)
    sidecar = earlier.take(1, tmp_path, 0)
    assert sidecar is not None
    part = sidecar[0]
    assert part.fits is not None
    publish_directory(tmp_path, [part], {"model": "mpm"})
    assert pd.read_parquet(tmp_path / "_fits")["query"].tolist() == ["q1"]
    assert set(pd.read_parquet(tmp_path)["query"]) == {"q1"}
