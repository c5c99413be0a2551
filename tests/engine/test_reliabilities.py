"""How reliable experts are, in what solve, fit, rank and experts give: with errors, and the votes that it rests on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from crowds import planted_votes

from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine import Fitted, fit, solve
from distagg.models import model_named

COLUMNS = ["expert", "reliability", "error", "low", "high", "votes"]
NAMES = {"crowd_bt": COLUMNS, "noisy_bt": COLUMNS, "theta_mpm": COLUMNS}


@pytest.fixture(scope="module")
def votes() -> pa.Table:
    """With an annotator who gave three votes."""
    table = planted_votes()[2]
    few = pa.table({"winner": ["i00", "i01", "i02"], "loser": ["i03", "i04", "i05"], "expert": ["thin"] * 3})
    return pa.concat_tables([table, few.cast(table.schema)])


@pytest.mark.parametrize("name", NAMES)
def test_solve_tells_how_reliable_experts_are(name: str, votes: pa.Table) -> None:
    experts = solve(name, votes).experts
    assert experts.column_names == NAMES[name]
    rows = experts.to_pylist()
    assert sorted(row["expert"] for row in rows) == sorted(set(votes["expert"].to_pylist()))
    values = [row["reliability"] for row in rows]
    assert values == sorted(values, reverse=True)
    assert all(row["low"] <= row["reliability"] <= row["high"] for row in rows)
    assert {row["votes"] for row in rows} == {60, 3}
    thin = next(row for row in rows if row["votes"] == 3)
    others = np.median([row["error"] for row in rows if row["votes"] == 60])
    assert thin["error"] > 1.3 * others  # the prior of crowd_bt and noisy_bt knows something, too
    good = [row["reliability"] for row in rows if row["expert"].startswith("good")]
    assert min(good) > max(row["reliability"] for row in rows if row["expert"].startswith("turned"))


def test_models_that_learn_no_reliability_have_no_rows(votes: pa.Table) -> None:
    assert len(solve("bradley_terry", votes).experts) == 0
    assert len(fit("bradley_terry", votes).reliabilities) == 0


def test_theta_mpm_on_lists(planted: Path) -> None:
    """Votes are all pairs that an expert's lists put in order, the items that they leave out behind the others."""
    dataset = Dataset.open(planted)
    rows = fit("theta_mpm", dataset).reliabilities.to_pylist()
    assert max(row["reliability"] for row in rows) == 1.0
    assert all(row["error"] > 0.0 for row in rows)
    pairs = dict.fromkeys(dataset.experts, 0)
    for chunk in dataset.chunks():
        for q in range(chunk.n_queries):
            size = int(chunk.item_offsets[q + 1] - chunk.item_offsets[q])
            for a in range(chunk.list_offsets[q], chunk.list_offsets[q + 1]):
                rank = chunk.entry_rank[chunk.entry_offsets[a] : chunk.entry_offsets[a + 1]]
                ordered = int((rank[:, None] < rank[None, :]).sum()) + len(rank) * (size - len(rank))
                pairs[dataset.experts[chunk.list_expert[a]]] += ordered
    assert {row["expert"]: row["votes"] for row in rows} == pairs


def test_theta_errors_shrink_with_votes() -> None:
    """Every vote four times: the same adherence, and half the error."""
    votes = planted_votes(7, votes=50, planted={"good": (8, 0.9)})[2]
    once, often = (solve("theta_mpm", pa.concat_tables([votes] * times)).experts for times in (1, 4))
    np.testing.assert_allclose(often["reliability"].to_numpy(), once["reliability"].to_numpy(), atol=2e-3)
    np.testing.assert_allclose(often["error"].to_numpy(), once["error"].to_numpy() / 2, rtol=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_unseen_experts_have_no_numbers(name: str, votes: pa.Table) -> None:
    more = pa.table({"winner": ["i00"], "loser": ["i01"], "expert": ["stranger"]}).cast(votes.schema)
    rows = solve(fit(name, votes), pa.concat_tables([votes, more])).experts.to_pylist()
    assert rows[-1]["expert"] == "stranger"
    assert rows[-1]["votes"] == 0
    assert {value for key, value in rows[-1].items() if key not in ("expert", "votes")} == {None}


def test_a_model_saved_without_errors_has_no_table() -> None:
    old = Fitted(model_named("theta_mpm"), {"expert_theta": np.ones(2)}, ("a", "b"))
    assert len(old.reliabilities) == 0


def test_on_the_command_line(votes: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    pyarrow.csv.write_csv(votes, "votes.csv")
    assert main(["fit", "crowd_bt", "votes.csv", "-o", "model"]) == 0
    shown = capsys.readouterr().out
    assert "95% interval" in shown
    assert "thin" in shown
    assert main(["rank", "crowd_bt", "votes.csv", "-o", "board.csv", "--experts", "annotators.csv"]) == 0
    written = pyarrow.csv.read_csv("annotators.csv").to_pylist()
    assert main(["rank", "model", "votes.csv", "-o", "board", "--report", "board.html", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["experts"]
    assert pq.read_table("board/_experts.parquet").to_pylist() == told == written
    assert "Reliability" in Path("board.html").read_text()
    assert main(["import", "pairs", "votes.csv", "-o", "votes"]) == 0
    capsys.readouterr()
    assert main(["experts", "model", "--data", "votes", "--report", "experts.html"]) == 0
    text = capsys.readouterr().out
    verdicts = dict(line.split()[:2] for line in text.splitlines() if line.startswith("turned-"))
    assert verdicts == dict.fromkeys(["turned-0", "turned-1", "turned-2"], "inverted")
    assert "95% interval" in text
    assert "Reliability of experts" in Path("experts.html").read_text()
    assert main(["experts", "model"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rank", "bradley_terry", "votes.csv", "--experts", "a.csv"], "does not learn how reliable experts are"),
        (["rank", "crowd_bt", "votes.csv", "--experts", "a.txt"], "expected .csv or .parquet"),
        (["rank", "crowd_bt", "votes.csv", "--experts", "votes.csv"], "exists already"),
    ],
)
def test_wrong_usage(words, said, votes: pa.Table, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    pyarrow.csv.write_csv(votes, "votes.csv")
    assert main(words) == 2
    assert said in capsys.readouterr().err
