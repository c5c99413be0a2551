"""A short run of every target, and a check that the campaign finds what it looks for. ``make fuzz`` is the long one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from fuzz import campaign, targets
from fuzz.targets import CORPUS, TARGETS, DisagreementError, Target

INPUTS = 60


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_but_distaggs_own_errors(name: str, tmp_path: Path) -> None:
    found = campaign.fuzz(TARGETS[name], INPUTS, seed=0, folder=tmp_path)
    assert [text for text, _ in found.findings] == []
    assert found.inputs == max(INPUTS, len(TARGETS[name].seeds()))


def test_every_folder_of_the_corpus_has_a_target() -> None:
    assert sorted(folder.name for folder in CORPUS.iterdir()) == sorted(TARGETS)


def _broken(file: Path) -> str:
    body = file.read_bytes()
    if b"0" in body:
        raise KeyError("a reader that does not check")
    if b"NULL" in body:
        raise DisagreementError("two parsers")
    return "fine"


def test_errors_and_disagreements_are_found(tmp_path: Path) -> None:
    found = campaign.fuzz(Target("where", "x", _broken), 300, seed=0, folder=tmp_path)
    assert any("KeyError" in text for text, _ in found.findings)
    assert any("DisagreementError" in text for text, _ in found.findings)
    assert all(b"0" in body or b"NULL" in body for _, body in found.findings)


def _fatal(file: Path) -> str:
    if b"25" not in file.read_bytes():
        os.kill(os.getpid(), signal.SIGKILL)
    return "fine"


def test_an_input_that_ends_the_process_is_found(tmp_path: Path) -> None:
    found = campaign.in_a_process(Target("where", "x", _fatal), 300, seed=0, folder=tmp_path)
    assert len(found.findings) == 1
    assert b"25" not in found.findings[0][1]


def test_a_reader_that_never_ends_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(file: Path) -> str:
        while True:
            pass

    monkeypatch.setattr(campaign, "CPU_SECONDS", 0.05)
    found = campaign.in_a_process(Target("where", "x", endless), 2, seed=0, folder=tmp_path)
    assert ["too long" in text for text, _ in found.findings] == [True, True]


def test_parsers_that_disagree_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = targets.delimited._parse_exact
    monkeypatch.setattr(targets.delimited, "_parse_exact", lambda lines, layout: exact(lines, layout).slice(1))
    file = tmp_path / "x.run"
    file.write_text("q1 Q0 d1 1 9.5 bm25\nq1 Q0 d2 2 8.5 bm25\n")
    with pytest.raises(DisagreementError):
        targets.read_trec(file)
