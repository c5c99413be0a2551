"""Ratings in the formats of MovieLens, made up and real."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distagg.dataset import Dataset, write_dataset
from distagg.errors import InputError, UsageError
from distagg.sources.ratings import RatingsSource

ROWS = [("7", "x", 3.5), ("7", "y", 0.0), ("12", "x", 5.0)]
TABLE = pa.table({"userId": [7, 7, 12], "movieId": ["x", "y", "x"], "rating": [3.5, 0.0, 5.0]})


def _files(folder: Path) -> list[Path]:
    texts = {
        "u.data": "".join(f"{u}\t{i}\t{r}\t881250949\n" for u, i, r in ROWS),
        "three.tsv": "".join(f"{u}\t{i}\t{r}\n" for u, i, r in ROWS),
        "ratings.dat": "".join(f"{u}::{i}::{r}::881250949\n" for u, i, r in ROWS),
        "ratings.csv": "userId,movieId,rating,timestamp\n" + "".join(f"{u},{i},{r},1\n" for u, i, r in ROWS),
        "quoted.csv": '"rating","user_id","item_id"\r\n' + "".join(f'{r},"{u}","{i}"\r\n' for u, i, r in ROWS),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, newline="")
    (folder / "ratings.csv.gz").write_bytes(gzip.compress(texts["ratings.csv"].encode()))
    pq.write_table(TABLE, folder / "ratings.parquet")
    return sorted(folder.iterdir())


def test_every_format_says_the_same(tmp_path: Path) -> None:
    for file in _files(tmp_path):
        rows = [row for table in RatingsSource([file]).tables() for row in table.table.to_pylist()]
        assert [(row["expert"], row["item"], -row["rank"]) for row in rows] == ROWS, file.name
        assert {row["query"] for row in rows} == {"all"}
        assert math.copysign(1, rows[1]["rank"]) == 1  # not minus zero
        assert {table.part for table in RatingsSource([file]).tables()} == {file.name}


def test_a_dataset_of_ratings(tmp_path: Path) -> None:
    files = _files(tmp_path)
    manifest = write_dataset(RatingsSource([files[0]]), tmp_path / "d")
    assert (manifest.partition, manifest.queries, manifest.items, manifest.experts) == ("expert", 1, 2, 2)
    assert not manifest.positive
    assert not manifest.scores
    chunk = next(Dataset.open(tmp_path / "d").chunks())
    assert chunk.entry_rank.tolist() == [-3.5, 0.0, -5.0]


@pytest.mark.parametrize("rating", ["nan", "inf", "good", "", "1,5"])
@pytest.mark.parametrize(("name", "between"), [("u.data", "\t"), ("ratings.dat", "::"), ("ratings.csv", ",")])
def test_bad_ratings_are_named(tmp_path: Path, name: str, between: str, rating: str) -> None:
    first = ["userId", "movieId", "rating", "timestamp"] if name == "ratings.csv" else ["1", "w", "2", "0"]
    lines = [between.join(words) for words in (first, ["1", "x", "3", "0"], ["1", "y", rating, "0"])]
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError) as caught:
        list(RatingsSource([tmp_path / name]).tables())
    assert caught.value.line == 3
    assert caught.value.file.endswith(name)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("odd", [False, True])
def test_a_line_cut_after_the_rating(tmp_path: Path, end: str, odd: bool) -> None:
    """By the fast parser as by the exact one, to which an odd number sends the block."""
    file = tmp_path / "ratings.dat"
    file.write_text(f"1::4::{'+3' if odd else '3'}::0\n1::5::3::{end}", newline="")
    with pytest.raises(InputError, match="3 fields") as caught:
        list(RatingsSource([file]).tables())
    assert caught.value.line == 2


@pytest.mark.parametrize("odd", [False, True])
def test_a_table_may_leave_cells_empty_that_are_not_read(tmp_path: Path, odd: bool) -> None:
    file = tmp_path / "ratings.csv"
    file.write_text(f"userId,movieId,rating,tag\n1,4,{'+3' if odd else '3'},\n1,5,3,good\n")
    assert sum(len(table.table) for table in RatingsSource([file]).tables()) == 2
    file.write_text(f"userId,movieId,rating,tag\n1,4,{'+3' if odd else '3'},\n1,5,3,")  # cut
    with pytest.raises(InputError) as caught:
        list(RatingsSource([file]).tables())
    assert caught.value.line == 3


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_bad_ratings_in_parquet(tmp_path: Path, value: float | None) -> None:
    table = TABLE.set_column(2, "rating", pa.array([1.0, value, 2.0]))
    pq.write_table(table, tmp_path / "r.parquet")
    with pytest.raises(InputError, match=r"r\.parquet:2: found (no )?rating"):
        list(RatingsSource([tmp_path / "r.parquet"]).tables())


def test_bad_columns(tmp_path: Path) -> None:
    pq.write_table(TABLE.rename_columns(["who", "movieId", "rating"]), tmp_path / "r.parquet")
    with pytest.raises(InputError, match="columns who, movieId, rating"):
        list(RatingsSource([tmp_path / "r.parquet"]).tables())
    pq.write_table(TABLE.set_column(2, "rating", pa.array(["a", "b", "c"])), tmp_path / "r.parquet")
    with pytest.raises(InputError, match="column rating of type string"):
        list(RatingsSource([tmp_path / "r.parquet"]).tables())
    (tmp_path / "r.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="damaged"):
        list(RatingsSource([tmp_path / "r.parquet"]).tables())
    (tmp_path / "r.csv").write_text("1,2,3,4\n")
    with pytest.raises(InputError, match=r"r\.csv:1: found header '1,2,3,4'"):
        list(RatingsSource([tmp_path / "r.csv"]).tables())
    with pytest.raises(UsageError, match="no rating files"):
        RatingsSource([])
    with pytest.raises(InputError, match="no such file"):
        list(RatingsSource([tmp_path / "none.parquet"]).tables())


def test_the_same_movie_rated_twice(tmp_path: Path) -> None:
    for file in _files(tmp_path):
        if file.name == "ratings.parquet":
            pq.write_table(pa.concat_tables([TABLE, TABLE.slice(0, 1)]), file)
        elif file.suffix != ".gz":
            lines = file.read_text().splitlines()
            again = lines[1] if file.suffix == ".csv" else lines[0]
            file.write_text("\n".join([*lines, again]) + "\n")
        else:
            continue
        with pytest.raises(InputError, match=r"again in the list of '7'") as caught:
            write_dataset(RatingsSource([file]), tmp_path / "d")
        assert caught.value.line == (5 if file.suffix == ".csv" else 4), file.name


@pytest.mark.real
def test_movielens_100k(data_dir: Path, tmp_path: Path) -> None:
    source = RatingsSource([data_dir / "ml-100k" / "u.data"])
    manifest = write_dataset(source, tmp_path / "d", block_entries=20_000)
    assert (manifest.experts, manifest.items, manifest.entries) == (943, 1682, 100_000)
    assert (manifest.lists, manifest.queries, manifest.parts) == (943, 1, ("u.data",))
    assert len(manifest.blocks) > 4
    spilled = write_dataset(source, tmp_path / "spilled", block_entries=20_000, memory_bytes=1 << 18)
    assert spilled == manifest
    chunks = list(Dataset.open(tmp_path / "d").chunks())
    assert sum(chunk.n_entries for chunk in chunks) == 100_000
