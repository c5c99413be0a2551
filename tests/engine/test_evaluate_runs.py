"""Runs evaluated straight from files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from distagg import evaluate_runs
from distagg.engine import rbo
from distagg.errors import InputError, UsageError
from distagg.metrics import compare_all
from distagg.reports import comparison_table

QRELS = "".join(f"{q} 0 d{i} {int(i == q)}\n" for q in range(4) for i in range(4))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "qrels").write_text(QRELS)
    (tmp_path / "good").write_text(
        "".join(
            f"{q} Q0 d{i} 0 {i == q} t\n".replace("True", "1").replace("False", "0") for q in range(4) for i in range(4)
        )
    )
    (tmp_path / "poor.csv").write_text(
        "query,item,rank\n" + "".join(f"{q},d{i},{(i + q) % 4 + 1}\n" for q in (0, 1, 9) for i in range(4))
    )
    return tmp_path


def test_files_of_several_kinds(files: Path) -> None:
    result = evaluate_runs([files / "good", files / "poor.csv"], files / "qrels", ["RR", "P_1"], seed=3)
    assert result.query_ids == ["0", "1", "2", "3"]
    assert result.means == {"good": {"mrr": 1.0, "p@1": 1.0}, "poor.csv": {"mrr": (1 + 1 / 3) / 4, "p@1": 0.25}}
    assert result.baseline == "good"
    values = {name: run.evaluation.values[:, 0] for name, run in result.runs.items()}
    expected = compare_all(values, baseline="good", seed=3)[0]
    test = result.tests[0]
    assert (test["metric"], test["a"], test["b"], test["queries"]) == ("mrr", "poor.csv", "good", 4)
    assert (test["p_t"], test["p_randomisation_holm"]) == (expected.test.t_test, expected.randomisation_holm)
    assert result.notes() == [
        "poor.csv: judged queries missing from the run count as 0: 2 of 4 (2, 3)",
        "poor.csv: queries without judgements are not evaluated: 1 (9)",
    ]


def test_result_as_a_comparison(files: Path) -> None:
    body = evaluate_runs([files / "good", files / "poor.csv"], files / "qrels", ["mrr", "RR"]).to_dict()
    assert body["metrics"] == ["mrr"]
    assert len(body["tests"]) == 1
    assert json.loads(json.dumps(body)) == body
    assert body["per_query"]["good"] == {"mrr": [1.0] * 4}
    assert body["missing"] == {"good": [], "poor.csv": ["2", "3"]}
    assert comparison_table(body).splitlines()[2].split() == ["good", "100.00"]


def test_skip_counts_only_queries_of_the_run(files: Path) -> None:
    result = evaluate_runs({"mine": files / "poor.csv"}, files / "qrels", ["mrr"], missing="skip")
    assert result.means == {"mine": {"mrr": pytest.approx(2 / 3)}}
    assert result.tests == []
    assert "are left out of its means" in result.notes()[0]


def test_names_and_baseline(files: Path) -> None:
    (files / "other").mkdir()
    (files / "other" / "good").write_text((files / "good").read_text())
    same = evaluate_runs([files / "good", files / "other" / "good"], files / "qrels", ["mrr"])
    assert list(same.runs) == [str(files / "good"), str(files / "other" / "good")]
    with pytest.raises(UsageError, match="unknown baseline 'god'; did you mean 'good'"):
        evaluate_runs([files / "good"], files / "qrels", baseline="god")
    with pytest.raises(UsageError, match="is given twice"):
        evaluate_runs([files / "good", files / "good"], files / "qrels")
    with pytest.raises(UsageError, match="no runs to evaluate"):
        evaluate_runs([], files / "qrels")
    both = evaluate_runs([files / "good", str(files / "poor.csv")], files / "qrels", ["mrr"], baseline="poor.csv")
    assert [test["a"] for test in both.tests] == ["good"]
    assert np.isclose(both.tests[0]["difference"], 1 - both.means["poor.csv"]["mrr"])


def test_refuses_bad_judgements(files: Path) -> None:
    (files / "words").write_text("1 0 x high\n")
    with pytest.raises(InputError, match=r"words:1: found label 'high'"):
        evaluate_runs([files / "good"], files / "words")
    empty = pa.table({"query": pa.array([], pa.string()), "item": pa.array([], pa.string()), "label": [1][:0]})
    with pytest.raises(UsageError, match="qrels holds no judgements"):
        evaluate_runs([files / "good"], empty)


def test_rbo_of_files(files: Path) -> None:
    same = rbo(files / "good", str(files / "good"))
    assert same["query"].to_pylist() == ["0", "1", "2", "3"]
    np.testing.assert_allclose(same["rbo"].to_pylist(), 1.0)
    other = rbo(files / "good", files / "poor.csv")
    assert dict(zip(*other.to_pydict().values(), strict=True))["9"] == 0.0


@pytest.mark.parametrize(
    ("name", "text"),
    [("halves", "1 0 d0 0.5\n1 0 d1 2\n"), ("halves.tsv", "query-id\tcorpus-id\tscore\n1\td0\t0.5\n1\td1\t2\n")],
)
def test_labels_of_files_may_have_fractions_where_the_metric_takes_them(files: Path, name: str, text: str) -> None:
    (files / name).write_text(text)
    result = evaluate_runs({"mine": {"1": {"d0": 1.0}}}, files / name, ["dcg@1"])
    assert result.means == {"mine": {"dcg@1": 0.5}}
    with pytest.raises(UsageError, match=rf"{name}: found the label 0.5, but map is defined on whole grades"):
        evaluate_runs({"mine": {"1": {"d0": 1.0}}}, files / name, ["dcg@1", "map"])
