"""``distagg board``: one command from battles to a page, a table and a matrix."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from reports.reading import Report

from distagg.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def battles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(1)
    lines = ["model_a,model_b,winner,judge,tstamp"]
    for n in range(600):
        a, b = draw.choice(6, 2, replace=False)
        won = (
            "tie" if draw.random() < 0.1 else "model_a" if draw.random() < 1 / (1 + np.exp((a - b) / 2)) else "model_b"
        )
        lines.append(f"m{a},m{b},{won},j{n % 7},2026-0{1 + n // 200}-11")
    (tmp_path / "battles.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "battles.csv"


def test_one_command_writes_everything(battles: Path, capsys: Capture) -> None:
    files = ["-o", "board.html", "-o", "board.csv", "-o", "board.parquet", "-o", "board.json", "--matrix", "m.csv"]
    assert main(["board", str(battles), *files, "--anchor", "m0:1200"]) == 0
    shown = capsys.readouterr()
    assert max(map(len, shown.out.splitlines())) <= 80
    assert shown.out.splitlines()[2].split()[:3] == ["1", "m0", "1200"]
    assert "All items are connected" in shown.out
    report = Report(Path("board.html").read_text())
    assert [row[0] for row in report.tables["Board of query all"][1:]] == [f"m{n}" for n in range(6)]
    assert "script" not in report.names()
    table = pc.read_csv("board.csv")
    assert table["item"].to_pylist() == pq.read_table("board.parquet")["item"].to_pylist()
    assert json.loads(Path("board.json").read_text())["boards"][0]["items"][0]["score"] == 1200
    matrix = pc.read_csv("m.csv").to_pandas().set_index("item")
    np.testing.assert_allclose(matrix + matrix.T, 1.0)


def test_json_and_an_imported_dataset_say_the_same(battles: Path, capsys: Capture) -> None:
    assert main(["import", "pairs", str(battles), "-o", "dataset"]) == 0
    capsys.readouterr()
    said = []
    for data in (str(battles), "dataset"):
        assert main(["board", data, "--json", "--scale", "log", "-p", "ties=davidson"]) == 0
        said.append(json.loads(capsys.readouterr().out)["boards"][0])
    assert said[0]["about"]["fit"]["tie"] > 0
    assert [row["item"] for row in said[0]["items"]] == [row["item"] for row in said[1]["items"]]
    np.testing.assert_allclose(*[[row["low"] for row in board["items"]] for board in said], atol=1e-6)


def test_boards_by_month_are_drawn(battles: Path, capsys: Capture) -> None:
    columns = ["--columns", "tstamp=time"]
    assert main(["board", str(battles), *columns, "--by", "month", "-o", "b.html", "-o", "b.csv"]) == 0
    report = Report(Path("b.html").read_text())
    assert [row[0] for row in report.tables["Scores over time"][1:]] == ["2026-01", "2026-02", "2026-03"]
    periods = pc.read_csv("b.csv", convert_options=pc.ConvertOptions(column_types={"period": "string"}))
    assert set(periods["period"].to_pylist()) == {"all", "2026-01", "2026-02", "2026-03"}
    capsys.readouterr()
    assert main(["board", str(battles), *columns, "--since", "2026-03-01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["boards"][0]["about"]["battles"] == 200


def test_several_queries_have_a_board_each(battles: Path, capsys: Capture) -> None:
    lines = battles.read_text().splitlines()
    asked = [lines[0] + ",query", *(f"{line},q{n % 2}" for n, line in enumerate(lines[1:]))]
    Path("asked.csv").write_text("\n".join(asked) + "\n")
    assert main(["board", "asked.csv", "-o", "asked.html"]) == 0
    assert capsys.readouterr().out.count("rank  item") == 2
    assert {"Board of query q0", "Board of query q1"} <= set(Report(Path("asked.html").read_text()).tables)
    assert main(["board", "asked.csv", "--matrix", "m.csv"]) == 2
    assert "choose it with --query" in capsys.readouterr().err
    assert main(["board", "asked.csv", "--query", "q1", "--matrix", "m.csv"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "board.txt"], "expected .html, .csv, .parquet, .json"),
        (["--matrix", "m.html"], "expected .csv, .parquet"),
        (["--min-battles", "-1"], "expected 0 or more"),
        (["--scale", "furlongs"], "expected one of log, elo"),
        (["--anchor", "m0"], "expected NAME:VALUE"),
        (["--by", "month"], "column time"),
        (["--model", "rrf"], "bradley_terry or thurstone"),
        (["-p", "scale=elo", "--scale", "elo"], "expected one of them"),
    ],
)
def test_a_slip_is_answered_with_the_way_out(battles: Path, words: list[str], said: str, capsys: Capture) -> None:
    text = battles.read_text().replace(",tstamp", ",other")
    battles.write_text(text)
    assert main(["board", str(battles), *words]) == 2
    assert said in capsys.readouterr().err


def test_a_table_is_not_written_over_but_a_page_is(battles: Path, capsys: Capture) -> None:
    for code in (0, 2):
        assert main(["board", str(battles), "-o", "board.csv"]) == code
    assert "exists" in capsys.readouterr().err
    for _ in range(2):
        assert main(["board", str(battles), "-o", "board.html"]) == 0


def test_a_hostile_name_stays_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "<script>alert(1)</script>"
    Path("b.csv").write_text(f'winner,loser\n"{name}",b\nb,c\nc,"{name}"\n')
    assert main(["board", "b.csv", "-o", "b.html"]) == 0
    report = Report(Path("b.html").read_text())
    assert "script" not in report.names()
    assert name in report.text
