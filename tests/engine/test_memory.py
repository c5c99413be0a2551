"""Models that compare every two items say no before they start, if the largest query does not fit into memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import distagg
from distagg.cli.main import main
from distagg.dataset import Dataset
from distagg.engine import memory
from distagg.engine.memory import check_memory, needed_memory, usable_memory
from distagg.errors import UsageError
from distagg.models import MODELS, model_named

SIZE = 50_000


@pytest.fixture(scope="module")
def large() -> Dataset:
    """Two queries, the second of 50,000 items in two lists."""
    items = [f"d{n}" for n in range(SIZE)]
    table = {
        "query": ["small"] * 4 + ["large"] * (2 * SIZE),
        "expert": ["a", "a", "b", "b"] + ["a"] * SIZE + ["b"] * SIZE,
        "item": ["x", "y", "y", "x", *items, *reversed(items)],
        "rank": [1, 2, 1, 2, *range(1, SIZE + 1), *range(1, SIZE + 1)],
    }
    return Dataset.from_arrow(pa.table(table))


@pytest.fixture(autouse=True)
def eight_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "usable_memory", lambda: 8_000_000_000)


@pytest.mark.parametrize("name", ["copeland", "mc4", "kemeny", "mallows", "schulze", "bradley_terry", "win_rate"])
def test_a_query_too_large_for_memory_is_refused(name: str, large: Dataset) -> None:
    model = model_named(name, {"pool": "0"})
    with pytest.raises(UsageError) as caught:
        distagg.rank(model, large)
    message = str(caught.value)
    assert f"{name} compares all 50,000 items of query 'large'" in message
    assert f"{SIZE * SIZE * model.square_bytes / 1e9:,.1f} GB of memory, and there are 8.0 GB" in message
    assert f"pool=N; {int((8e9 / model.square_bytes) ** 0.5):,} fit" in message
    assert "rrf, borda" in message
    with pytest.raises(UsageError, match="compares all"):
        distagg.compare(large, [model])


def test_the_default_pool_fits(large: Dataset) -> None:
    for name, kind in MODELS.items():
        if "pool" in kind.__dataclass_fields__:
            check_memory(model_named(name), large)


def test_models_that_compare_all_items_say_what_they_need() -> None:
    quadratic = {name for name, kind in MODELS.items() if kind.cost.startswith(("items^2", "pairs"))}
    assert {name for name in quadratic if not MODELS[name].square_bytes} == {"cps"}  # which keeps no matrix


def test_pairs_that_nobody_compared_need_nothing(large: Dataset) -> None:
    short = replace(large, manifest=replace(large.manifest, list_lengths={"min": 2, "median": 2, "max": 100}))
    assert needed_memory(model_named("win_rate", {"pool": "0"}), short) == (SIZE, 60 * 2 * 100**2)
    assert needed_memory(model_named("copeland", {"pool": "0"}), short) == (SIZE, 12 * SIZE**2)
    pairs = replace(large, manifest=replace(large.manifest, kind="pairs", entries=7))
    assert needed_memory(model_named("bradley_terry"), pairs)[1] == 60 * 7
    ratings = replace(large, manifest=replace(large.manifest, positive=False))
    assert needed_memory(model_named("copeland"), ratings)[0] == SIZE  # ratings have no pool


def test_the_memory_of_workers_counts(large: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere:
        client = "a client"

    monkeypatch.setattr(memory, "ask_workers", lambda client, function: {"a": 10**12, "b": 2 * 10**9})
    model = model_named("copeland", {"pool": "0"})
    with pytest.raises(UsageError, match=r"there are 2\.0 GB"):
        check_memory(model, large, Elsewhere())  # type: ignore[arg-type]


def test_limits_of_control_groups_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    whole = usable_memory()
    (tmp_path / "memory.max").write_text("max\n")
    assert usable_memory() == whole
    (tmp_path / "memory.max").write_text("123456789\n")
    assert usable_memory() == 123456789


def test_the_command_says_it_and_exits_2(large: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{q},{e},d{n},{n + 1}" for q, e in (("one", "a"), ("one", "b")) for n in range(SIZE)]
    (tmp_path / "lists.csv").write_text("query,expert,item,rank\n" + "\n".join(lines) + "\n")
    assert main(["rank", "copeland", str(tmp_path / "lists.csv"), "-p", "pool=0"]) == 2
    assert "copeland compares all 50,000 items of query 'one'" in capsys.readouterr().err
