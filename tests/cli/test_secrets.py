"""No credential of a URL is printed, logged or written: every output of every command is searched for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_jobs import ranking_job

from distagg.cli.main import main
from distagg.engine.dask import remote_cluster
from distagg.errors import UsageError, hidden
from distagg.pipeline.folder import RunFolder, environment
from distagg.storage.paths import place

SECRET = "wJalrXUtnFEMI"
URLS = [
    f"s3://AKIAKEY:{SECRET}@bucket/x",
    f"s3://AKIAKEY:{SECRET}/K7MDENG{SECRET}@bucket/x",
    f"S3://AKIAKEY:{SECRET}@bucket/x",
    f"https://me:{SECRET}@host.invalid/x",
    f"gs://me:{SECRET}@bucket/x",
    f"file://me:{SECRET}@host/x",
    f"s3://bucket/x?secret_key={SECRET}",
]
COMMANDS = [
    ["info", "URL"],
    ["info", "URL", "--debug"],
    ["verify", "URL"],
    ["rank", "rrf", "URL", "-o", "out.csv"],
    ["rank", "rrf", "DATA", "-o", "URL"],
    ["rank", "URL", "DATA", "-o", "out.csv"],
    ["fit", "rrf", "DATA", "-o", "URL"],
    ["evaluate", "URL", "DATA"],
    ["import", "trec", "URL", "-o", "imported"],
    ["import", "trec", "DATA", "-o", "URL"],
    ["compare", "URL", "--models", "rrf"],
    ["run", "job.json", "steps.ranked.dataset=URL"],
    ["plan", "job.json", "steps.ranked.dataset=URL"],
    ["run", "job.json", "-o", "URL"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("url", URLS)
def test_no_command_tells_a_secret(
    url: str,
    command: list[str],
    planted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.json").write_text(json.dumps(ranking_job(planted)))
    words = [word.replace("URL", url).replace("DATA", str(planted)) for word in command]
    monkeypatch.setattr("sys.argv", ["distagg", *words])
    assert main(words) in (2, 3)
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err
    assert told.err
    for file in tmp_path.rglob("*"):
        assert SECRET not in str(file)
        assert not file.is_file() or SECRET not in file.read_text(encoding="utf-8", errors="replace")


def test_an_endpoint_with_a_password_is_told_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(variable, f"http://me:{SECRET}@127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert main(["info", "s3://bucket/x"]) in (2, 3, 4)
    told = capsys.readouterr()
    assert SECRET not in told.out + told.err
    assert "s3://bucket/x" in told.err


def test_what_a_run_notes_about_itself_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["distagg", "run", f"--scheduler=tls://me:{SECRET}@host:8786"])
    assert SECRET not in json.dumps(environment())
    RunFolder(tmp_path).say("failed", error=f"no answer from http://me:{SECRET}@host:9000")
    assert SECRET not in (tmp_path / "events.jsonl").read_text()
    assert "http://...@host:9000" in (tmp_path / "events.jsonl").read_text()


def test_python_users_do_not_see_it_either() -> None:
    for url in URLS[:6]:
        with pytest.raises(UsageError) as caught:
            place(url)
        assert SECRET not in str(caught.value)
    with pytest.raises(UsageError) as caught, remote_cluster(f"tcp://me:{SECRET}@10.0.0.1:8786"):
        pass
    assert SECRET not in str(caught.value)


def test_what_is_no_credential_stays() -> None:
    for text in ("no cluster at tls://node-1:8786", "a@b.example: found x", "s3://bucket/a:b@c", "http://h:1/x y@z"):
        assert hidden(text) == text
