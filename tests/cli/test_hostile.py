"""Names from files cannot change a terminal, a log or a spreadsheet; options too large to mean anything are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distagg.cli.main import main
from distagg.cli.models import models_command
from distagg.engine import dask as engine_dask
from distagg.engine.certificates import make_certificates
from distagg.engine.dask import WORKERS_PER_CORE, remote_cluster
from distagg.errors import FOUND, MESSAGE, UsageError, one_line

Capture = pytest.CaptureFixture[str]
ESCAPE = "\x1b[2J\x1b]0;owned\x07"


@pytest.mark.parametrize(
    ("kind", "name", "content"),
    [
        ("letor", "x.txt", f"{ESCAPE} qid:1 1:1\n"),
        ("trec", "x.run", f"q Q0 a 1 {ESCAPE}x t\n"),
        ("rankings", "x.csv", f"expert,item,rank\ne,a,{ESCAPE}\n"),
        ("rankings", "y.csv", f"expert,item,rank,{ESCAPE}\ne,a,1,2\n"),
        ("pairs", "x.jsonl", '{"winner": "a", "loser": "b", "tie": "\\u001b[2J\\u202e\\ud800"}\n'),
        ("pairs", "z.csv", f"winner,loser,tie\na,b,{ESCAPE * 2000}\n"),
        ("ratings", "u.data", f"1\t2\t{ESCAPE}\t4\n"),
    ],
)
def test_errors_are_one_line_without_control_characters(
    kind: str, name: str, content: str, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / name).write_text(content)
    assert main(["import", kind, str(tmp_path / name), "-o", str(tmp_path / "d")]) == 3
    said = capsys.readouterr().err
    assert said.endswith("\n")
    assert said[:-1].isprintable(), said
    assert len(said) < MESSAGE
    assert "expected" in said


def test_the_log_is_without_control_characters(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x.csv").write_text(f"model_a,model_b,winner,{ESCAPE}\na,b,tie,1\n")
    assert main(["import", "pairs", str(tmp_path / "x.csv"), "-o", str(tmp_path / "d")]) == 0
    said = capsys.readouterr().err
    assert "columns that are not read: \\x1b[2J" in said
    assert all(line.isprintable() for line in said.splitlines())


def test_file_names_with_control_characters(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "a\x1b[2J\nb.csv"
    assert main(["import", "pairs", str(file), "-o", str(tmp_path / "d")]) == 3
    assert capsys.readouterr().err[:-1].isprintable()


def test_messages_are_cut() -> None:
    assert len(one_line("x" * 10_000)) == MESSAGE + 3
    assert one_line("a\n  b\x1b") == "a b\\x1b"
    assert FOUND < MESSAGE


class PanicError(BaseException):
    """As Rust extension modules raise it."""


@pytest.mark.parametrize("error", [PanicError("index out of bounds"), SystemExit(0), RecursionError("too deep")])
def test_a_crash_never_looks_like_success(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def run(**values: object) -> None:
        raise error

    monkeypatch.setattr(models_command, "callback", run)
    assert main(["models"]) == 70
    assert "this is a bug in distagg" in capsys.readouterr().err


FORMULAS = "expert,item,rank\ne,=1+1,1\ne,@x,2\ne,plain,3\ne,-a,4\nf,+b,1\n"


@pytest.mark.parametrize("output", ["r.csv", None])
def test_safe_csv_of_rankings(
    output: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text(FORMULAS)
    words = ["rank", "borda", "x.csv", *(["-o", output] if output else ["--format", "csv"])]
    assert main([*words, "--safe-csv"]) == 0
    text = Path(output).read_text() if output else capsys.readouterr().out
    items = [line.split(",")[1] for line in text.splitlines()[1:]]
    assert sorted(items) == sorted(["'=1+1", "'@x", "plain", "'-a", "'+b"])
    assert all("'" not in line.split(",")[3] for line in text.splitlines())  # scores below 0 stay numbers


def test_safe_csv_of_boards_and_suggestions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    Path("b.csv").write_text("winner,loser\n=a,b\nb,=a\nb,@c\n@c,b\n=a,@c\n")
    assert main(["board", "b.csv", "-o", "plain.csv"]) == 0
    assert main(["board", "b.csv", "-o", "safe.csv", "--matrix", "m.csv", "--safe-csv"]) == 0
    assert Path("plain.csv").read_text().replace("=a", "'=a").replace("@c", "'@c") == Path("safe.csv").read_text()
    assert "\n'=a," in Path("m.csv").read_text()
    capsys.readouterr()
    assert main(["suggest", "b.csv", "-n", "3", "--safe-csv"]) == 0
    assert "=a" not in capsys.readouterr().out.replace("'=a", "")


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "DATA", "--models", ""],
        ["compare", "DATA", "--models", "rrf,"],
        ["tune", "DATA", "--models", ""],
        ["tune", "DATA", "--beside", ""],
        ["rank", "rrf", "DATA", "-o", "OUT", "--workers", "99999999999"],
        ["rank", "rrf", "DATA", "-o", "OUT", "--workers", str(WORKERS_PER_CORE * (os.cpu_count() or 1) + 1)],
        ["rank", "rrf", "DATA", "-o", "OUT", "--workers", "-1"],
        ["certificates", "OUT", "--days", "0"],
        ["certificates", "OUT", "--days", "99999999"],
        *(["certificates", "OUT", "--hosts", hosts] for hosts in (
            "", "a,,b", "a b", "-a", "a-.b", "999.1.1.1", "1:2:3", "a_b", "x" * 64, "*", "a.*.b", "DNS:a",
            "a,IP:1.2.3.4", "a\nextendedKeyUsage=codeSigning", ".".join(["abcdefgh"] * 40),
        )),
    ],
)  # fmt: skip
def test_options_that_mean_nothing(words: list[str], planted: Path, tmp_path: Path, capsys: Capture) -> None:
    places = {"DATA": str(planted), "OUT": str(tmp_path / "out")}
    assert main([places.get(word, word) for word in words]) == 2
    assert "found" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_expired_certificates_are_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dask
    import distributed  # noqa: F401 (its defaults have to be there before some are set for a while)

    make_certificates(tmp_path / "c", ["localhost", "127.0.0.1", "::1", "*.example"], days=30)
    files = {"ca-file": "ca.pem", "client.cert": "cert.pem", "client.key": "key.pem"}
    with dask.config.set({f"distributed.comm.tls.{key}": str(tmp_path / "c" / name) for key, name in files.items()}):
        engine_dask._refuse_unreadable_certificates("tls://127.0.0.1:1")
        later = engine_dask.time.time() + 31 * 86_400
        monkeypatch.setattr(engine_dask.time, "time", lambda: later)
        with pytest.raises(UsageError, match="they expired on"), remote_cluster("tls://127.0.0.1:1"):
            pass


@pytest.mark.parametrize("link", ["", "output", "staging", "output/ranked"])
def test_links_in_run_directories_are_not_followed(link: str, planted: Path, tmp_path: Path, capsys: Capture) -> None:
    job, run, elsewhere = tmp_path / "job.toml", tmp_path / "run", tmp_path / "elsewhere"
    job.write_text(f'name = "x"\n[steps.ranked]\ndo = "rank"\nmodel = "rrf"\ndataset = "{planted}"\n')
    elsewhere.mkdir()
    (run / link).parent.mkdir(parents=True, exist_ok=True)
    (run / link if link else run).symlink_to(elsewhere)
    assert main(["run", str(job), "-o", str(run)]) == 2
    assert "is a symbolic link" in capsys.readouterr().err
    assert not list(elsewhere.iterdir())
