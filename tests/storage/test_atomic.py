"""Output is all there or not there."""

from pathlib import Path

import pytest

from distagg.errors import UsageError
from distagg.storage.atomic import staged_directory, staged_file


def test_a_directory_appears_whole_with_its_marker(tmp_path: Path):
    with staged_directory(tmp_path / "deep" / "out") as folder:
        (folder / "a").write_text("1")
        assert not (tmp_path / "deep" / "out").exists()
    assert sorted(p.name for p in (tmp_path / "deep" / "out").iterdir()) == ["_SUCCESS", "a"]
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]):
    with pytest.raises(error), staged_directory(tmp_path / "out") as folder:
        (folder / "a").write_text("1")
        raise error
    with pytest.raises(error), staged_file(tmp_path / "file") as file:
        file.write_text("1")
        raise error
    assert not list(tmp_path.iterdir())


def test_what_exists_is_never_replaced(tmp_path: Path):
    (tmp_path / "out").write_text("mine")
    for stage in (staged_directory, staged_file):
        with pytest.raises(UsageError, match="exists already"), stage(tmp_path / "out"):
            pass
    with pytest.raises(UsageError, match="exists already"), staged_file(tmp_path / "late") as file:
        file.write_text("ours")
        (tmp_path / "late").write_text("theirs")  # somebody else was faster
    assert (tmp_path / "out").read_text() == "mine"
    assert (tmp_path / "late").read_text() == "theirs"
