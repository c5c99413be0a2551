"""Tables about users and items, and ratings that do not fit them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine import import_dataset, rank
from distagg.errors import InputError, UsageError
from distagg.sources.about import read_about
from distagg.sources.ratings import RatingsSource


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
)  # fmt: skip
def test_every_format(tmp_path: Path, name: str, text: str, row: dict[str, object]) -> None:
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
