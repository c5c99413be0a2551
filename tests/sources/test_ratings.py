"""Ratings in the formats of MovieLens, made up and real; tables about users and items; ratings that do not fit them."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distagg import rank
from distagg.cli.main import main
from distagg.dataset import Dataset, write_dataset
from distagg.engine import import_dataset
from distagg.errors import InputError, UsageError
from distagg.sources.ratings import RatingsSource, read_about

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


@pytest.mark.parametrize(
    ("name", "text", "row"),
    [
        ("u.user", "7|24|M|cook|85711\n", {"id": "7", "age": 24, "gender": "M", "occupation": "cook", "zip": 85711}),
        ("users.dat", "7::F::1::10::x1\n", {"id": "7", "gender": "F", "age": 1, "occupation": 10, "zip": "x1"}),
        ("movies.dat", "7::Brazil: a|b::War|Noir\n", {"id": "7", "title": "Brazil: a|b", "genres": "War|Noir"}),
        ("movies.csv", 'movieId,title,genres\n7,"Go, A",War\n', {"movieId": "7", "title": "Go, A", "genres": "War"}),
        ("any.csv", "who,height,note\n7,1.5,\n", {"who": "7", "height": 1.5, "note": None}),
        ("bar.csv", "who|height\n7|2\n", {"who": "7", "height": 2}),
    ],
)
def test_every_format_of_tables_about_users(tmp_path: Path, name: str, text: str, row: dict[str, object]) -> None:
    (tmp_path / name).write_text(text)
    assert read_about(tmp_path / name).to_pylist() == [row]


def test_old_files_are_latin_1_and_parquet_ids_become_text(tmp_path: Path) -> None:
    (tmp_path / "movies.dat").write_bytes("7::Cité des enfants::Drama\n".encode("latin-1"))
    assert read_about(tmp_path / "movies.dat")["title"].to_pylist() == ["Cité des enfants"]
    pq.write_table(pa.table({"movieId": [7], "title": ["x"]}), tmp_path / "m.parquet")
    assert read_about(tmp_path / "m.parquet").to_pylist() == [{"movieId": "7", "title": "x"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "an empty file"),
        ("7|24|M|cook|8\n7|24|M|cook|8\n", "id '7' twice"),
        ("7|24|M|cook|8\n8|24|M\n", ":2: found 3 fields, expected 5: id, age"),
        ("a::b\n", "2 fields, expected id::gender"),
        ("id,x,x\n1,2,3\n", "each column once"),
        ("id,x\n1\n", ":2: found 1 fields"),
    ],
)
def test_broken_tables(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_about(tmp_path / "t.csv")
    with pytest.raises(InputError, match="no such file"):
        read_about(tmp_path / "missing.parquet")


RATINGS = "u1\ti1\t5\nu1\ti2\t3\nu2\ti1\t1\n"


def _source(folder: Path, name: str, **options: object) -> RatingsSource:
    (folder / "r.tsv").write_text(RATINGS)
    rows = [line.split("\t") for line in RATINGS.splitlines()]
    columns = {word: [row[at] for row in rows] for at, word in enumerate(("user", "item"))}
    pq.write_table(pa.table({**columns, "rating": [float(row[2]) for row in rows]}), folder / "r.parquet")
    return RatingsSource([folder / name], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["r.tsv", "r.parquet"])
def test_ids_in_no_table_and_ratings_off_the_scale_are_named(tmp_path: Path, name: str) -> None:
    wrong = [
        ({"items": pa.table({"id": ["i1"]})}, ":2: found item 'i2', expected one of the 1 in the table of items"),
        ({"users": pa.table({"id": ["u1"]})}, ":3: found user 'u2'"),
        ({"scale": (2.0, 5.0)}, ":3: found rating 1, expected a rating from 2 to 5"),
        ({"scale": (1.0, 4.5)}, ":1: found rating 5"),
    ]
    for options, said in wrong:
        with pytest.raises(InputError, match=said):
            list(_source(tmp_path, name, **options).tables())
    with pytest.raises(UsageError, match="scale 5,1"):
        _source(tmp_path, name, scale=(5.0, 1.0))
    assert len(list(_source(tmp_path, name, scale=(1.0, 5.0)).tables())) == 1


def test_a_dataset_keeps_what_is_known(tmp_path: Path) -> None:
    """Items nobody rated are there, in the table's order; users who rated nothing are not."""
    (tmp_path / "r.tsv").write_text(RATINGS)
    (tmp_path / "i.csv").write_text("id,title\ni0,Nought\ni2,Two\ni1,One\n")
    (tmp_path / "u.csv").write_text("id,age\nu2,30\nu0,99\nu1,20\n")
    dataset = import_dataset(
        "ratings", [tmp_path / "r.tsv"], tmp_path / "d", items=tmp_path / "i.csv", users=tmp_path / "u.csv"
    )
    assert dataset.titles is not None
    assert dataset.titles.to_pylist() == [
        {"item": f"i{n}", "title": t} for n, t in ((0, "Nought"), (2, "Two"), (1, "One"))
    ]
    assert dataset.experts == ("u1", "u2")
    assert dataset.select(audience="age > 25").audience_size == 1
    assert len(rank("mpm", dataset)) == 3
    assert Dataset.open(tmp_path / "d").manifest.items == 3


def test_hard_users_change_nothing(tmp_path: Path) -> None:
    """Who rated one item, or all alike, says nothing; nor do items that nobody rated stand at an end."""
    plain = "a\tx\t5\na\ty\t3\nb\ty\t4\nb\tz\t2\n"
    (tmp_path / "plain.tsv").write_text(plain)
    (tmp_path / "hard.tsv").write_text(plain + "one\tz\t5\nsame\tx\t3\nsame\ty\t3\nsame\tz\t3\n")
    (tmp_path / "i.csv").write_text("id,title\nx,X\ny,Y\nz,Z\n")
    orders = []
    for name in ("plain", "hard"):
        dataset = import_dataset("ratings", [tmp_path / f"{name}.tsv"], tmp_path / name, items=tmp_path / "i.csv")
        for model in ("mpm", "bradley_terry", "plackett_luce"):
            table = rank(model, dataset)
            orders.append((model, table["item"].to_pylist(), table["score"].to_numpy().round(6).tolist()))
    assert orders[:2] == orders[3:5]
    assert orders[2][:2] == orders[5][:2]


def test_a_rating_given_twice_is_refused_with_both_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.tsv").write_text("a\tx\t5\nb\tx\t3\na\tx\t4\n")
    assert main(["import", "ratings", str(tmp_path / "r.tsv"), "-o", str(tmp_path / "d")]) == 3
    said = capsys.readouterr().err
    assert "r.tsv:3" in said
    assert "first at r.tsv:1" in said
    assert not (tmp_path / "d").exists()
    for scale in ("5", "a,b", "5,1"):
        command = ["import", "ratings", str(tmp_path / "r.tsv"), "--scale", scale, "-o", str(tmp_path / "d")]
        assert main(command) == 2
