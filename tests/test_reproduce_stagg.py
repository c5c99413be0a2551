"""jobs/reproduce/stagg.py, robustness.py: metrics as paper 004 writes them, rows that fall short first, a picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
import pytest
from strategies import Query, build_chunk

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def stagg(load_job: Callable[[str], ModuleType]) -> ModuleType:
    return load_job("reproduce/stagg.py")


@pytest.fixture(scope="module")
def robustness(load_job: Callable[[str], ModuleType]) -> ModuleType:
    return load_job("reproduce/robustness.py")


def test_metrics_are_those_of_the_paper(stagg: ModuleType) -> None:
    """Equations 5 to 7, place by place; six items: NDCG@10 is 0 by the script's rule."""
    labels = [0, 2, 1, 0, 0, 1]
    scores = np.array([0.5, 0.4, 0.9, 0.1, 0.2, 0.3])
    found = stagg.paper_metrics(build_chunk([Query(6, labels=labels)]), scores, 2)[0]
    ranked = [labels[i] for i in np.argsort(-scores)]
    dcg = sum((2**y - 1) / np.log2(1 + r) for r, y in enumerate(ranked[:5], start=1))
    best = sum((2**y - 1) / np.log2(1 + r) for r, y in enumerate(sorted(labels, reverse=True)[:5], start=1))
    err, goes_on = 0.0, 1.0
    for r, y in enumerate(ranked, start=1):
        err, goes_on = err + goes_on * (2**y - 1) / 4 / r, goes_on * (1 - (2**y - 1) / 4)
    rbp = sum(0.05 * y * 0.95 ** (r - 1) for r, y in enumerate(ranked, start=1))
    assert found[[2, 3, 4]] == pytest.approx([err, rbp, dcg / best])
    assert found[1] == found[5] == 0.0


def test_rows_that_fall_short_stand_first(
    stagg: ModuleType,
    planted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    high = {**stagg.PAPER["mq2008"], "rrf": (100.0, 0.0, 0.0, 0.0), "borda": (0.0, 0.0, 0.0, 0.0)}
    monkeypatch.setitem(stagg.PAPER, "mq2008", high)
    found = tmp_path / "rows.json"
    command = ["--mq2008", str(planted), "--part", "lists", "--models", "borda,rrf", "--json", str(found)]
    assert stagg.main(command) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:3] == ["SHORT", "mq2008", "rrf"]
    rows = json.loads(found.read_text())["lists"]
    assert [(row["row"], row["short"]) for row in rows] == [("rrf", True), ("borda", False)]


def test_draws_of_experts(robustness: ModuleType, planted: Path, tmp_path: Path, capsys: Capture) -> None:
    query = Query(3, {0: {0: 1.0, 1: 2.0}, 2: {2: 1.0}, 3: {1: 4.0, 2: 6.0}})
    some = robustness.of_experts(build_chunk([query, Query(2, {2: {1: 1.0}})], n_experts=4), np.array([2, 3]))
    same = build_chunk([Query(3, {2: {2: 1.0}, 3: {1: 4.0, 2: 6.0}}), Query(2, {2: {1: 1.0}})], n_experts=4)
    for name in ("list_offsets", "list_expert", "entry_offsets", "entry_item", "entry_rank"):
        np.testing.assert_array_equal(getattr(some, name), getattr(same, name))
    picture, figures = tmp_path / "picture.svg", tmp_path / "figures.json"
    command = ["--mq2008", str(planted), "--models", "borda,stagg_bc", "--draws", "3"]
    assert robustness.main([*command, "--svg", str(picture), "--json", str(figures)]) == 0
    found = json.loads(figures.read_text())["mq2008"]
    assert {name: [len(draws) for draws in rows] for name, rows in found.items()} == dict.fromkeys(found, [3] * 4)
    assert np.mean(found["borda"][-1]) > np.mean(found["borda"][0])  # more experts know more
    lines = [e for e in ElementTree.fromstring(picture.read_text()).iter() if e.tag.endswith("polyline")]
    assert len(lines) == 2
    assert "stagg_bc" in capsys.readouterr().out


def test_wrong_use_is_refused(robustness: ModuleType, stagg: ModuleType, planted: Path, capsys: Capture) -> None:
    for job in (stagg, robustness):
        with pytest.raises(SystemExit, match="2"):
            job.main([])
    assert robustness.main(["--mq2008", str(planted), "--models", "crf"]) == 2
    assert "learn nothing" in capsys.readouterr().err
