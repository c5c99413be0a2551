"""Rankings in parts: finished ones are taken up again, damaged ones made again, the bytes always the same."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from small_jobs import CHUNK, write_small

from distagg.dataset import Dataset
from distagg.engine.rank import rank_to
from distagg.engine.rank_resumable import accepted_parts, rank_in_parts
from distagg.models import Model, model_named


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset.open(write_small(tmp_path_factory.mktemp("parts") / "data"))


class StoppedError(Exception):
    """The driver dies."""


def ranked(
    folder: Path, dataset: Dataset, model: Model | None = None, *, stop: int | None = None, **more: Any
) -> list[tuple[str, dict[str, Any]]]:
    """Rank into ``folder/out``; die after some parts if asked to. Gives what was said."""
    said: list[tuple[str, dict[str, Any]]] = []

    def say(event: str, **about: Any) -> None:
        said.append((event, about))
        if event == "part" and sum(one == "part" for one, _ in said) == stop:
            raise StoppedError

    model = model or model_named("rrf")
    staging = folder / "staging"
    rank_in_parts(folder / "out", staging, model, {}, dataset, chunk_entries=CHUNK, say=say, **more)
    assert not staging.exists()
    return said


def bytes_of(target: Path) -> dict[str, str]:
    files = [target] if target.is_file() else sorted(target.iterdir())
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.parametrize("fmt", ["parquet", "csv", "trec"])
def test_finished_parts_are_not_ranked_again(fmt: str, dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = ranked(tmp_path / "a", dataset, fmt=fmt)
    total = whole[0][1]["total"]
    assert whole[0] == ("parts", {"total": total, "taken": 0, "missing": total})
    assert total > 8
    with pytest.raises(StoppedError):
        ranked(tmp_path / "b", dataset, fmt=fmt, stop=5)
    assert not (tmp_path / "b" / "out").exists()
    said = ranked(tmp_path / "b", dataset, fmt=fmt)
    assert said[0] == ("parts", {"total": total, "taken": 5, "missing": total - 5})
    assert [about["number"] for event, about in said if event == "part"] == list(range(5, total))
    assert bytes_of(tmp_path / "a" / "out") == bytes_of(tmp_path / "b" / "out")


def test_the_rows_are_those_of_plain_ranking(dataset: Dataset, tmp_path: Path) -> None:
    from distagg.engine.read_rankings import read_rankings

    ranked(tmp_path, dataset)
    rank_to(tmp_path / "plain", model_named("rrf"), {}, dataset)
    assert read_rankings(tmp_path / "out").equals(read_rankings(tmp_path / "plain"))


@pytest.mark.parametrize("damage", ["bytes", "sidecar", "gone"])
def test_damaged_parts_are_said_and_made_again(damage: str, dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        ranked(tmp_path, dataset, stop=4)
    sidecar = sorted((tmp_path / "staging").glob("part-*.json"))[2]
    attempt = sidecar.with_suffix("")
    if damage == "gone":
        attempt.unlink()
    else:
        file = sidecar if damage == "sidecar" else attempt
        file.write_bytes(file.read_bytes()[:30])
    said = ranked(tmp_path, dataset)
    assert ("part damaged", {"file": attempt.name}) in said
    assert next(about for event, about in said if event == "part")["number"] == 2


def test_parts_of_something_else_are_not_used(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        ranked(tmp_path, dataset, stop=4)
    assert len(accepted_parts(tmp_path / "staging")[0]) == 4
    said = ranked(tmp_path, dataset, model_named("rrf", {"c": 7}))
    assert said[0][1]["taken"] == 0
