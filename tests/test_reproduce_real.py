"""On the real data the papers' figures and facts come out: as jobs/reproduce measures and draws them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from distagg.dataset import Dataset
from distagg.engine import import_dataset
from jobs.reproduce import experts, letor, movies, store
from jobs.reproduce.experiments import LETOR, Experiment
from jobs.reproduce.plan import PAPERS, PROCEDURES, Plan, measured

pytestmark = pytest.mark.real


def measuring(path: Path) -> Callable[[Experiment], dict[str, Any]]:
    """Measures every experiment once."""
    kept: dict[str, dict[str, Any]] = {}

    def found(one: Experiment) -> dict[str, Any]:
        if one.name not in kept:
            kept[one.name] = store.measure(one, path)[0]
        return kept[one.name]

    return found


def test_every_row_reaches_the_papers(imported: tuple[str, Path]) -> None:
    """NDCG@5 and MAP at or above the paper's, less half a point."""
    name, path = imported
    data = name.removesuffix("-agg")
    found, plan = measuring(path), Plan((data,))
    for row in (*letor.TABLES["volkovs2014-table1"].rows, "theta_sup_mpm"):
        ours, paper = measured(plan, found, data, row).means, PAPERS["letor"][data][row]
        assert ours["ndcg@5"] >= paper[4] - 0.5
        assert ours["map"] >= paper[10] - 0.5


def test_the_papers_procedure_gives_the_papers_figures(imported: tuple[str, Path]) -> None:
    """All eleven figures within half a point of Table 1, both ways; those of borda and condorcet to a digit."""
    name, path = imported
    data = name.removesuffix("-agg")
    found, plan = measuring(path), Plan((data,))
    exact, near_enough = ("borda", "condorcet"), ("svp", "bradley_terry", "plackett_luce")
    for row, near in [(row, 0.011) for row in exact] + [(row, 0.5) for row in near_enough]:
        ours, paper = measured(plan, found, data, PROCEDURES["letor"][row]).means, PAPERS["letor"][data][row]
        assert [round(ours[metric], 2) for metric in LETOR] == pytest.approx(paper, abs=near)
    for row, near in (("borda", 0.05), ("bestinput", 0.1)):  # Niu et al. 2013
        ours, paper = measured(plan, found, data, PROCEDURES["lists"][row]).means, PAPERS["lists"][data][row]
        assert [round(ours[m], 2) for m in ("ndcg@5", "ndcg@10", "err", "rbp")] == pytest.approx(paper, abs=near)


@pytest.fixture(scope="module")
def mq2008(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("real") / "mq2008"
    import_dataset("letor", [data_dir / "mq2008-agg" / f"A{part}.txt" for part in range(1, 6)], target)
    return target


def test_the_papers_useful_and_unused_experts_are_found_again(mq2008: Path) -> None:
    """Figure 11: fold 1 of MQ2008."""
    plan = Plan(("mq2008",))
    found = measuring(mq2008)
    rows = {row["expert"]: row for row in found(experts.ITEMS[3].needs(plan)[0])["experts"]}
    assert {name for name, row in rows.items() if row["verdict"] == "unused"} >= set(PAPERS["experts"]["unused"])
    listed = sorted(rows, key=lambda name: -rows[name]["listed"])
    assert {"15", "17", "18", "21"} == set(listed[:4])
    ordered = sorted(rows, key=lambda name: -rows[name]["order"])
    assert {"14", "15"} == set(ordered[:2])
    assert {rows[name]["verdict"] for name in ("11", "12")} == {"inverted"}
    assert max(rows, key=lambda name: rows[name]["loss"]) == "18"
    useful, unused, _ = experts.weights(plan, found).claims
    assert (useful.verdict, unused.verdict) == ("holds", "holds")


def test_nothing_is_lost_without_the_unused(mq2008: Path) -> None:
    """Table 6: comparable or better; here, no worse than half a point beyond chance."""
    given = {"settings": {**experts.PLAIN, "rounds": 100}, "papers": PAPERS["experts"]["unused"], "seeds": 1}
    result = store.KINDS["unused_experts"](Dataset.open(mq2008), **given)
    assert set(result["unused"]) >= {"13", "20"}
    whole, *others = (100 * np.array(runs[0]) for runs in result["means"].values())
    for means in others:
        assert means[4] >= whole[4] - 0.5


def test_movielens_is_the_papers(data_dir: Path, tmp_path: Path) -> None:
    """Volkovs & Zemel 2014, section 2.7: the order of methods in Table 2, the picture of Table 3, figures 3 and 4."""
    raw = data_dir / "ml-100k"
    import_dataset("ratings", [raw / "u.data"], tmp_path / "ml", users=raw / "u.user", items=raw / "u.item")
    plan, found = Plan(("movielens",)), measuring(tmp_path / "ml")
    drawn = movies.table2(plan, found)
    by_pmf, by_neighbours = ("plackett_luce", "mpm"), ("bradley_terry", "plackett_luce", "mpm")
    for exact, halved, near in zip(drawn.tables[::2], drawn.tables[1::2], (by_pmf, by_neighbours), strict=True):
        rows, half = ({row.name: row for row in one.rows} for one in (exact, halved))
        assert {name for name, row in half.items() if abs(row.worst) <= 0.5} >= set(near)
        assert half["bradley_terry"].again == pytest.approx(half["bradley_terry"].paper, abs=0.7)
        ours = rows["mpm, variance"]
        assert rows["bradley_terry"].ours[0] < ours.ours[0] - 10
        assert abs(rows["plackett_luce"].ours[0] - ours.ours[0]) < 1.5
        assert half["mpm"].again == pytest.approx(half["mpm"].paper, abs=0.5)
        assert sum(a > b for a, b in zip(ours.ours, rows["mpm"].ours, strict=True)) >= 8
    for name in ("bradley_terry", "plackett_luce"):  # completed by neighbours
        assert half[name].again == pytest.approx(half[name].paper, abs=0.03)
    assert drawn.claims[0].held >= 12
    assert "higher in 18" in drawn.claims[0].said  # than plackett_luce, at 2 to 10 by both completions
    assert [claim.verdict for claim in drawn.claims][1:3] == ["holds", "holds"]

    ends = found(movies.ends(plan))["ends"]
    assert ends["mpm"]["top"][0]["title"] == "Star Wars (1977)"
    for model, rows in ends.items():
        fewest = min(row["experts"] for end in rows.values() for row in end)
        if model == "mpm":
            assert fewest > 100
        if model in ("bradley_terry", "plackett_luce, default"):
            assert fewest < 10
    claims = {claim.text: claim for claim in movies.table3(plan, found).claims}
    for model in ("bradley_terry", "plackett_luce"):
        for end in ("top", "bottom"):
            assert claims[f"the {end} five of {model}, in the paper's order"].verdict == "holds"
    assert claims["the top five of mpm, in the paper's order"].verdict == "holds"
    assert [claim.verdict for claim in movies.figure3(plan, found).claims] == ["holds"]
    assert [claim.verdict for claim in movies.figure4(plan, found).claims] == ["holds"] * 3


def test_completions_err_less_than_their_like_in_surprise(
    load_job: Callable[[str], ModuleType], data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = load_job("reproduce/rmse.py")
    found = job.errors(data_dir / "ml-100k" / "u.data", data_dir / "ml-100k" / "u.item", {})
    for ours, theirs in (("pmf", "surprise SVD"), ("neighbours", "surprise KNNBaseline")):
        assert all(a < b for a, b in zip(found[ours], job.SURPRISE[theirs], strict=True))
    assert job.main(["x", "y", "-c", "pmf"]) == 2
    assert "expected COMPLETION.key=value" in capsys.readouterr().err
