"""The seed of a run reaches every model that draws, whoever starts it; a seed among the model's settings wins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from distagg import compare
from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine import fit, fit_completion, load_model, solve
from distagg.engine.fitting.search import variants
from distagg.engine.read_rankings import read_rankings
from distagg.models import COMPLETIONS, MODELS, draws
from distagg.models.boosted.blend import PLAIN, Blend

Capture = pytest.CaptureFixture[str]
DRAWING = {
    "bradley_terry": {"errors": "bootstrap", "resamples": 3},
    "thurstone": {"errors": "bootstrap", "resamples": 3},
    "plackett_luce": {"solver": "gibbs"},
    "cranking": {"rounds": 2},
    "partial_mallows": {"rounds": 2, "tolerance": 1e9},
    "kwiksort": {"tries": 1},
    "sup_mc": {"rounds": 2, "mode": "serial"},
    "crf": {"rounds": 2},
    "lambdarank": {"rounds": 2},
    "stagg": {"rounds": 2},
    "lambdamart": {"trees": 3},
    "blend": {"crf": 1, "lambdamart": 0, "lambdarank": 0},
}  # settings with which drawing matters, and little work


@pytest.fixture(scope="module")
def small(planted: Path) -> Dataset:
    return Dataset.open(planted).select(fold=(10, {0}))


@pytest.mark.filterwarnings("ignore::distagg.models.NotConvergedWarning")
@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if draws(model)])
def test_two_seeds_differ_and_one_seed_gives_the_same_bits(name: str, small: Dataset) -> None:
    def bits(**seed: int) -> list[Any]:
        fitted = fit(name, small, **seed, **DRAWING[name])
        rankings = solve(fitted, small).ranking
        return [{key: value.tobytes() for key, value in fitted.params.items()}, rankings.to_pydict()]

    assert bits(seed=5) == bits(seed=5)
    assert bits(seed=5) != bits(seed=6)
    assert bits(seed=0) == bits()


@pytest.mark.parametrize(("name", "settings"), [("pmf", {"rounds": 2}), ("neighbours", {"pool": 20})])
@pytest.mark.filterwarnings("ignore::distagg.models.NotConvergedWarning")
def test_completions_follow_the_seed(name: str, settings: dict, crowd: Path, tmp_path: Path) -> None:
    assert draws(COMPLETIONS[name])
    dataset, more = Dataset.open(crowd), [f"-c{key}={value}" for key, value in settings.items()]

    def scores(seed: int) -> list[float]:
        target = tmp_path / f"{name}-{seed}.csv"
        main(["rank", "mean", str(crowd), "--complete", name, *more, "--seed", str(seed), "-o", str(target)])
        return read_rankings(target)["score"].to_pylist()

    through, drawn = fit_completion(name, dataset, seed=6, **settings), scores(6)
    assert drawn == solve("mean", dataset, through=through).ranking["score"].to_pylist()
    assert drawn != scores(5)


def test_a_seed_among_the_settings_wins() -> None:
    assert [model.seed for model in variants("crf", {}, seed=5)] == [5]  # type: ignore[attr-defined]
    assert [model.seed for model in variants("crf", {"seed": "1,2"}, seed=5)] == [1, 2]  # type: ignore[attr-defined]
    assert variants("lambdarank", {"ranker": "lightgbm"}, seed=5)[0].seed == 5  # type: ignore[attr-defined]
    blend = variants("blend", {}, seed=5)[0]
    assert isinstance(blend, Blend)
    seeds = [int(member.seed) for name, member in blend.members.items() if name.split()[0] not in PLAIN]  # type: ignore[attr-defined]
    assert {seed // 1000 for seed in seeds} == {5}


def test_compare_draws_from_its_seed_and_says_so(small: Dataset) -> None:
    def run(seed: int, own: dict[str, int]) -> tuple[float, set[int]]:
        settings = {"crf": {"rounds": 2, **own}}
        found = compare(small, ["crf"], settings=settings, folds="3", metrics=["map"], seed=seed)
        return found["means"]["crf"]["map"], {row["seed"] for row in found["results"]}

    five = run(5, {})
    assert five[0] != run(0, {})[0]
    assert five == run(0, {"seed": 5})
    assert five[1] == {5}


def commanded(capsys: Capture, command: Sequence[str]) -> Any:
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_command_line_gives_models_its_seed(planted: Path, tmp_path: Path, capsys: Capture) -> None:
    fits = {
        name: commanded(capsys, ["fit", "crf", str(planted), "-p", "rounds=1", *more, "-o", str(tmp_path / name)])
        for name, more in {"run": ["--seed", "5"], "own": ["-p", "seed=5", "--seed", "7"], "none": []}.items()
    }
    assert fits["run"] == fits["own"]
    assert fits["run"]["settings"]["seed"] == 5
    assert fits["none"]["settings"]["seed"] == 0
    assert load_model(tmp_path / "run").model.seed == 5  # type: ignore[attr-defined]


def test_ranking_draws_from_its_seed(planted: Path, tmp_path: Path) -> None:
    """By a model that is named, and by a saved one, which has a seed of its own."""
    saved, given = tmp_path / "saved", ["-p", "errors=bootstrap", "-p", "resamples=3"]
    assert main(["fit", "bradley_terry", str(planted), "--seed", "5", *given, "-o", str(saved)]) == 0
    found = {}
    for name, command in {
        "named 5": ["bradley_terry", *given, "--seed", "5"],
        "named 0": ["bradley_terry", *given],
        "saved 5": [str(saved)],
        "saved 0": [str(saved), "--seed", "0"],
    }.items():
        target = tmp_path / name
        assert main(["rank", command[0], str(planted), *command[1:], "-o", str(target)]) == 0
        found[name] = read_rankings(target)["low"].to_pylist()
    assert found["named 5"] == found["saved 5"] != found["named 0"] == found["saved 0"]


def test_a_job_draws_from_its_seed(planted: Path, tmp_path: Path) -> None:
    steps = {"model": {"do": "fit", "model": "crf", "dataset": str(planted), "settings": {"rounds": 1}}}
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"name": "drawn", "steps": steps}), encoding="utf-8")
    assert main(["run", str(job), "seed=5", "-o", str(tmp_path / "run")]) == 0
    assert load_model(tmp_path / "run" / "output" / "model").model.seed == 5  # type: ignore[attr-defined]
