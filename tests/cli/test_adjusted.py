"""Covariates and times on the command line: import, rank, its page and its JSON."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from sided import simulated

from distagg.cli.main import main

Capture = pytest.CaptureFixture[str]
SETTINGS = ("-p", "covariates=length_a-length_b,position", "-p", "errors=standard")


@pytest.fixture
def battles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table = simulated(400, items=4, seed=2).table()
    days = [f"2026-0{1 + row % 3}-15" for row in range(400)]
    pyarrow.csv.write_csv(table.append_column("date", [days]), "battles.csv")
    return tmp_path


def test_files_and_datasets_give_the_same_board(battles: Path, capsys: Capture) -> None:
    assert main(["rank", "bradley_terry", "battles.csv", *SETTINGS, "-o", "board.csv"]) == 0
    told = capsys.readouterr().err
    assert main(["import", "pairs", "battles.csv", "--covariates", "length,position", "-o", "battles"]) == 0
    out = capsys.readouterr().out
    assert "2026-01-15, 2026-03-15" in out
    assert "length, position" in out
    command = ["rank", "bradley_terry", "battles", *SETTINGS, "-o", "board", "--json", "--report", "board.html"]
    assert main(command) == 0
    rows = json.loads(capsys.readouterr().out)["coefficients"]
    assert [row["covariate"] for row in rows] == ["length", "position"]
    for row in rows:
        assert f"{row['coefficient']:.6g}" in told
        assert f"{row['odds_ratio']:.6g}" in told
        assert f"{row['coefficient']:.4g}" in Path("board.html").read_text()
    fits = pq.read_table(next(Path("board/_fits").glob("*.parquet")))
    assert fits["coefficient"][0].as_py() == [row["coefficient"] for row in rows]
    scores = pq.read_table(next(Path("board").glob("part-*.parquet")))["score"].to_pylist()
    board = csv.DictReader(Path("board.csv").read_text().splitlines())
    assert scores == pytest.approx([float(row["score"]) for row in board], abs=1e-8)


def test_pairs_by_date(battles: Path, capsys: Capture) -> None:
    def comparisons(*period: str) -> float:
        capsys.readouterr()
        assert main(["rank", "bradley_terry", "battles.csv", "--support", "--json", *period]) == 0
        return sum(row["comparisons"] for row in json.loads(capsys.readouterr().out)) / 2

    assert comparisons() == 400
    assert comparisons("--since", "2026-02-01") == 266
    assert comparisons("--since", "2026-02-01", "--until", "2026-03-01") == 133
    assert main(["rank", "bradley_terry", "battles.csv", "--since", "2027-01-01"]) == 2
    assert "2026-01-15 to 2026-03-15" in capsys.readouterr().err
    assert main(["rank", "bradley_terry", "battles.csv", "--until", "soon"]) == 2
    assert "until: found 'soon', expected a date" in capsys.readouterr().err


def test_a_separating_column_is_bad_input(battles: Path, capsys: Capture) -> None:
    header, *lines = Path("battles.csv").read_text().splitlines()
    rows = [f"{line},{1 if 'model_a' in line.split(',')[2] else -1}" for line in lines]
    Path("separated.csv").write_text("\n".join([f'{header},"hint"', *rows]) + "\n")
    assert main(["rank", "bradley_terry", "separated.csv", "-p", "covariates=hint"]) == 3
    assert "covariate hint" in capsys.readouterr().err
