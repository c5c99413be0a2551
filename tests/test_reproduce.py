"""jobs/reproduce: what falls short stands first, and on the real data the papers' figures and facts come out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from distagg.cli.main import main


@pytest.fixture(scope="module")
def table1(load_job: Callable[[str], ModuleType]) -> ModuleType:
    return load_job("reproduce/table1.py")


def test_rows_that_fall_short_stand_first(table1: ModuleType) -> None:
    paper = (40.0,) * 11
    rows = [
        table1.Row("mq2008", "fine", paper, (39.5,) * 11),
        table1.Row("mq2008", "absent", paper, ()),
        table1.Row("mq2008", "short", paper, (50.0,) * 10 + (39.49,)),
    ]
    assert [row.verdict for row in rows] == ["met", "MISSING", "SHORT"]
    text = table1.table(rows)
    assert text.index("short") < text.index("absent") < text.index("fine")
    assert "-0.51" in text


def test_wrong_use_is_refused(table1: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--mq2008", "x", "--models", "borda"], []):
        with pytest.raises(SystemExit, match="2"):
            table1.main(arguments)
    assert table1.main(["--mq2008", "x", "-p", "cps"]) == 2
    assert "expected MODEL.key=value" in capsys.readouterr().err


@pytest.mark.real
def test_every_row_reaches_the_papers(
    imported: tuple[str, Path], table1: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NDCG@5 and MAP at or above the paper's, less half a point."""
    name, target = imported
    data = name.removesuffix("-agg")
    found = tmp_path / "rows.json"
    assert table1.main([f"--{data}", str(target), "--json", str(found)]) == 0
    assert "MISSING" not in capsys.readouterr().out
    for row in json.loads(found.read_text()):
        for metric in (4, 10):
            assert row["ours"][metric] >= row["paper"][metric] - 0.5


@pytest.mark.real
def test_movielens_is_the_papers(
    load_job: Callable[[str], ModuleType], data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Paper 000, section 2.7: the order of methods in Table 2, the picture of Table 3, figures 3 and 4."""
    job, folder = load_job("reproduce/movielens.py"), data_dir / "ml-100k"
    about = ["--users", str(folder / "u.user"), "--items", str(folder / "u.item")]
    assert main(["import", "ratings", str(folder / "u.data"), *about, "-o", str(tmp_path / "ml")]) == 0
    file, page = tmp_path / "found.json", tmp_path / "page.html"
    assert job.main([str(tmp_path / "ml"), "--json", str(file), "--report", str(page)]) == 0
    assert "Figure 4" in capsys.readouterr().out
    found = json.loads(file.read_text())
    rows = {(row["completion"], row["model"]): row for row in found["table2"]}
    for completion in ("pmf", "neighbours"):
        first = {model: row["ours"][0] for (name, model), row in rows.items() if name == completion}
        assert first["bradley_terry"] < first["mpm"] - 10
        assert abs(first["plackett_luce"] - first["mpm"]) < 1.5
        mpm = rows[completion, "mpm"]
        assert mpm["ours"][0] == pytest.approx(mpm["paper"][0], abs=1)
        assert mpm["halved"] == pytest.approx(mpm["paper"], abs=1.5)
        better = [a > b for a, b in zip(rows[completion, "mpm, variance"]["ours"], mpm["ours"], strict=True)]
        assert sum(better) >= 8
    assert rows["pmf", "neighbours, borda"]["ours"][0] < rows["pmf", "mpm"]["ours"][0] - 5

    def fewest(model: str, end: str) -> int:
        return min(row["experts"] for row in found["ends"][model][end])

    assert found["ends"]["mpm"]["top"][0]["title"] == "Star Wars (1977)"
    for end in ("top", "bottom"):
        assert fewest("mpm", end) > 100
        for model in ("bradley_terry", "bradley_terry, default", "plackett_luce, default"):
            assert fewest(model, end) < 10
    means = found["constants"]["means"]
    for at in range(8):
        for metric in range(3):
            least, middle, most = (means[m][at][metric] for m in ("bradley_terry", "plackett_luce", "mpm"))
            assert least < middle < most
    assert found["constants"]["largest p of mpm against them"] < 0.01
    known = found["variance"]
    assert known["correlation of variance and support"] < -0.8
    for end in ("first", "last"):
        assert known[f"median variance, {end} tenth"] < known["median variance, middle"]
    assert len(known["in the middle"]) == 3
    for movie in known["in the middle"]:
        assert 300 < movie["rank"] < 1300
        assert movie["share of movies with less"] < 0.1
    assert "Star Wars" in page.read_text()


@pytest.mark.real
def test_completions_err_less_than_their_like_in_surprise(
    load_job: Callable[[str], ModuleType], data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = load_job("reproduce/rmse.py")
    found = job.errors(data_dir / "ml-100k" / "u.data", data_dir / "ml-100k" / "u.item", {})
    for ours, theirs in (("pmf", "surprise SVD"), ("neighbours", "surprise KNNBaseline")):
        assert all(a < b for a, b in zip(found[ours], job.SURPRISE[theirs], strict=True))
    assert job.main(["x", "y", "-c", "pmf"]) == 2
    assert "expected COMPLETION.key=value" in capsys.readouterr().err
