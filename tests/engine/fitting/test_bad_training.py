"""Training data that teach little or nothing, and training that goes wrong: both trained models, every mode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from distagg import rank
from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine import Fitted, fit, load_model
from distagg.engine.fitting.train import Goal, evaluate_candidates
from distagg.engine.runner import InlineRunner
from distagg.errors import UsageError
from distagg.models import NotConvergedWarning
from distagg.models.crf.model import Crf
from distagg.models.scorers.scorer import LambdaRank, Stagg
from distagg.models.trained import MODES, Trained, TrainingState

KINDS = {"crf": Crf, "lambdarank": LambdaRank, "stagg": Stagg}
every = pytest.mark.parametrize("mode", MODES)
both = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)

Labels = list[int | None]


def table(queries: dict[str, Labels], experts: tuple[str, ...] = ("a", "b")) -> pa.Table:
    """In every query both experts list the items in the order of their labels, the second all but the last."""
    rows: dict[str, list] = {key: [] for key in ("query", "expert", "item", "rank", "label")}
    for query, labels in queries.items():
        for n, expert in enumerate(experts):
            for place, label in enumerate(labels[: len(labels) - n] or labels):
                for key, value in zip(rows, (query, expert, f"i{place}", place + 1, label), strict=True):
                    rows[key].append(value)
    return pa.table({**rows, "label": pa.array(rows["label"], pa.int32())})


GOOD: dict[str, Labels] = {f"good {n}": [2, 1, 0, 0] for n in range(4)}
ODD: dict[str, dict[str, Labels]] = {
    "all labels equal": {"odd": [1, 1, 1, 1]},
    "no label": {"odd": [None, None, None]},
    "some labels missing": {"odd": [2, None, 0, None]},
    "one labelled item": {"odd": [None, 1, None]},
    "one item": {"odd": [2]},
    "more labels than a sample holds": {"odd": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]},
    "a negative label": {"odd": [1, 0, -1]},
}


def trained(kind: type[Trained], mode: str, dataset: Dataset, **more: Dataset) -> Fitted:
    return fit(kind(mode=mode, rounds=4), dataset, **more)


@both
@every
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_queries_among_good_ones(kind: type[Trained], mode: str, odd: dict[str, Labels]) -> None:
    dataset = Dataset.from_arrow(table({**GOOD, **odd}))
    fitted = trained(kind, mode, dataset, valid=dataset)
    assert all(np.isfinite(value).all() for value in fitted.params.values())
    ranking = rank(fitted, dataset).to_pylist()
    best = [row["item"] for row in ranking if row["query"].startswith("good") and row["rank"] == 1]
    assert best == ["i0"] * len(GOOD)
    assert sum(row["query"] == "odd" for row in ranking) == len(odd["odd"])


@both
@every
@pytest.mark.parametrize("name", ["all labels equal", "one labelled item", "one item"])
def test_nothing_but_queries_that_teach_nothing(kind: type[Trained], mode: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"nothing to train {kind.name} on: no query .* two items with different"):
        fit(kind(mode=mode, rounds=4, unjudged="ignore"), Dataset.from_arrow(table(ODD[name])))


@both
@every
def test_no_labels_at_all(kind: type[Trained], mode: str) -> None:
    good, blank = (Dataset.from_arrow(table(q)) for q in (GOOD, ODD["no label"]))
    for train, valid in ((blank, good), (good, blank), (blank, None)):
        with pytest.raises(UsageError, match=f"{kind.name} learns from labels, but the dataset has none"):
            fit(kind(mode=mode), train, valid=valid)


@both
@every
def test_validation_queries_of_one_item_or_equal_labels_choose_something(kind: type[Trained], mode: str) -> None:
    for name in ("all labels equal", "one item"):
        fitted = trained(kind, mode, Dataset.from_arrow(table(GOOD)), valid=Dataset.from_arrow(table(ODD[name])))
        assert 1 <= fitted.params["round"][0] <= 4


@both
@every
def test_validation_with_other_experts(kind: type[Trained], mode: str) -> None:
    good = Dataset.from_arrow(table(GOOD))
    with pytest.raises(UsageError, match="none of the dataset's experts: x, y; it was fitted on a, b"):
        trained(kind, mode, good, valid=Dataset.from_arrow(table(GOOD, ("x", "y"))))
    some = Dataset.from_arrow(table(GOOD, ("b", "y")))
    assert trained(kind, mode, good, valid=some).params["curve"].max() == 1.0
    fewer = Dataset.from_arrow(table(GOOD, ("b",)))
    assert trained(kind, mode, good, valid=fewer).params["curve"].max() == 1.0


@every
@pytest.mark.parametrize("sharing", ["consensus", "mixed"])
def test_crf_that_shares_weights_takes_any_experts(sharing: str, mode: str) -> None:
    good, others = (Dataset.from_arrow(table(GOOD, names)) for names in (("a", "b"), ("x", "y")))
    fitted = fit(Crf(mode=mode, sharing=sharing, rounds=4), good, valid=others)
    assert rank(fitted, others)["item"][0].as_py() == "i0"


@both
@every
def test_weights_that_explode_end_training(kind: type[Trained], mode: str) -> None:
    """Ranks in the millions, differences of ranks, and a step without measure."""
    far = table({**GOOD, **{f"turned {n}": [0, 0, 1, 2] for n in range(3)}})
    far = far.set_column(3, "rank", pa.array([1e7 * rank for rank in far["rank"].to_pylist()]))
    settings = {"pairs": "difference", "reciprocal": 0} if kind is Crf else {"pairs": "difference"}
    dataset = Dataset.from_arrow(far)
    with np.errstate(all="ignore"), pytest.warns(NotConvergedWarning, match=f"{kind.name}: .*are kept; lower the rate"):
        fitted = fit(kind(mode=mode, rate=1e308, rounds=30, **settings), dataset)
    assert all(np.isfinite(value).all() for value in fitted.params.values())
    assert np.isfinite(rank(fitted, dataset)["score"].to_numpy()).all()


@both
@every
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_the_last_good_weights_are_kept(kind: type[Trained], mode: str, poison: float, monkeypatch: Any) -> None:
    """From round 3 on every weight is poisoned."""
    learn, slope = kind.learn, kind.slope

    def spoiled(made: Any, state: TrainingState) -> Any:
        weights, count = made
        late = state.round >= 2
        return ({key: value + poison for key, value in weights.items()} if late else weights), count

    model, dataset = kind(mode=mode, rounds=9, patience=9), Dataset.from_arrow(table(GOOD))
    good = fit(replace(model, rounds=2), dataset)
    monkeypatch.setattr(kind, "learn", lambda self, chunk, state: spoiled(learn(self, chunk, state), state))
    monkeypatch.setattr(kind, "slope", lambda self, chunk, state: spoiled(slope(self, chunk, state), state))
    said = f"{kind.name}: weights were no longer finite after round 3; the weights of round 1 are kept"
    with np.errstate(all="ignore"), pytest.warns(NotConvergedWarning, match=said):
        kept = fit(model, dataset)
    for name, value in good.params.items():
        np.testing.assert_array_equal(kept.params[name], value)


@both
def test_weights_whose_scores_are_no_numbers_choose_nothing(kind: type[Trained]) -> None:
    dataset, model = Dataset.from_arrow(table(GOOD)), kind()
    good, huge = ({name: np.full_like(v, size) for name, v in model.start(2).items()} for size in (1.0, 1.5e308))
    values = evaluate_candidates(model, [good, huge], dataset, Goal(), InlineRunner())
    assert values[1] == -np.inf < values[0]


def test_a_model_that_exploded_is_saved_and_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("query,expert,item,rank,label\nq,a,x,1,1\nq,a,y,9e15,0\np,a,x,1,0\np,a,y,9e15,1\n")
    assert main(["import", "rankings", str(tmp_path / "x.csv"), "-o", str(tmp_path / "d")]) == 0
    where = str(tmp_path / "m")
    command = ["fit", "crf", str(tmp_path / "d"), "-o", where, "-p", "rate=1e308", "-p", "pairs=difference"]
    with np.errstate(all="ignore"):
        assert main([*command, "-p", "reciprocal=0"]) == 1
    assert "no longer finite" in capsys.readouterr().err
    assert np.isfinite(load_model(Path(where)).params["expert_weights"]).all()
    assert main(["rank", where, str(tmp_path / "d"), "-o", str(tmp_path / "r")]) == 0


def test_other_experts_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, expert in (("d", "a"), ("other", "z")):
        rows = "".join(f"q,{expert},{item},{place},{2 - place}\n" for place, item in enumerate("xy", start=1))
        (tmp_path / f"{name}.csv").write_text(f"query,expert,item,rank,label\n{rows}")
        assert main(["import", "rankings", str(tmp_path / f"{name}.csv"), "-o", str(tmp_path / name)]) == 0
    data, other, where = (str(tmp_path / name) for name in ("d", "other", "m"))
    assert main(["fit", "lambdarank", data, "-o", where, "--valid", other]) == 2
    assert "none of the dataset's experts: z; it was fitted on a" in capsys.readouterr().err
    assert not Path(where).exists()
    assert main(["fit", "lambdarank", data, "-o", where]) == 0
    assert main(["rank", where, other, "-o", str(tmp_path / "r")]) == 2
    assert "none of the dataset's experts: z; it was fitted on a" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
