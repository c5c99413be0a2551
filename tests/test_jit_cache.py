"""Compiled kernels on disk: used where they can be trusted, never wrong, never in the way."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distagg import jit
from distagg import jit_cache as cache
from distagg.cli.main import main

ROOT = Path(__file__).parents[1]
DIGEST = "0" * 32
RUN = """
import numpy as np
from distagg.models.majority.kernels import teleported
step = np.arange(4.0)
print(teleported(step, np.zeros(4), 0.5), step.sum(), "hits", sum(teleported.compiled.stats.cache_hits.values()))
"""
ANSWER = "3.5 3.5 hits"


def started(folder: Path, script: str = RUN, source: Path = ROOT, **settings: str) -> subprocess.Popen[str]:
    told = {**os.environ, "DISTAGG_CACHE_DIR": str(folder), "PYTHONPATH": str(source), **settings}
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, cwd=source, env=told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ran(folder: Path, script: str = RUN, source: Path = ROOT, **settings: str) -> tuple[str, str]:
    """What a new process prints on stdout and on stderr."""
    process = started(folder, script, source, **settings)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip(), err.strip()


def files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


@pytest.fixture(autouse=True)
def _said_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_notes", [])


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that four processes at once have filled."""
    folder = tmp_path_factory.mktemp("first") / "new" / "cache"
    processes = [started(folder) for _ in range(4)]
    for process in processes:
        out, err = process.communicate(timeout=240)
        assert (process.returncode, err) == (0, "")
        assert out.startswith(ANSWER)
    return folder


@pytest.fixture
def filled(first: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(first, tmp_path / "cache"))


def test_processes_at_once_leave_one_private_file_that_the_next_one_loads(first: Path) -> None:
    assert first.stat().st_mode & 0o777 == 0o700
    assert len(files(first)) == 1
    assert ran(first) == (f"{ANSWER} 1", "")


def test_kept_code_is_loaded_without_all_that_compiling_needs(first: Path) -> None:
    script = RUN + "import sys; print(*sorted({'numba.np.linalg', 'scipy.linalg', 'sparse'} & set(sys.modules)))"
    assert ran(first, script) == (f"{ANSWER} 1", "")


def test_all_that_numba_knows_is_loaded_where_kept_code_misses_a_name() -> None:
    """LLVM would end the process."""
    from numba.core.registry import cpu_target
    from numba.core.runtime import rtsys

    class Target:
        refreshed = 0

        def refresh(self) -> None:
            self.refreshed += 1

    rtsys.initialize(cpu_target.target_context)  # what the stand-in below cannot do
    target = Target()
    cache._provide(target, ["malloc"])
    assert target.refreshed == 0
    cache._provide(target, ["malloc", "distagg_no_such_name"])
    assert target.refreshed == 1


def test_zero_turns_it_off(tmp_path: Path) -> None:
    assert ran(tmp_path / "cache", DISTAGG_CACHE="0") == (f"{ANSWER} 0", "")
    assert not (tmp_path / "cache").exists()


def test_a_constant_of_a_callee_in_another_file_changes_the_caller(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "distagg", tmp_path / "distagg", ignore=shutil.ignore_patterns("__pycache__"))
    kernels, header = tmp_path / "distagg" / "models", "from distagg.jit import kernel\n"
    callee = header + "FACTOR = {}\n@kernel\ndef scaled(x):\n    return FACTOR * x\n"
    caller = "from distagg.models.callee import scaled\n@kernel\ndef twice(x):\n    return scaled(2.0 * x)\n"
    (kernels / "caller.py").write_text(header + caller)
    answers = []
    for factor in (3.0, 5.0):
        (kernels / "callee.py").write_text(callee.format(factor))
        answers.append(ran(tmp_path / "cache", "from distagg.models.caller import twice; print(twice(1.0))", tmp_path))
    assert answers == [("6.0", ""), ("10.0", "")]


def test_constants_of_kernels_are_in_the_digest() -> None:
    """What a module with kernels takes from other modules of the package is covered by the digest."""
    covered = {file.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for file in cache.sources()}
    assert "distagg.models.crf.kernels" in covered
    for source in cache.sources():
        imported = re.findall(r"^from (distagg\S*) import", source.read_text(), re.MULTILINE)
        assert set(imported) <= covered | {"distagg.jit"}, source


def test_kernels_of_other_packages_are_not_kept() -> None:
    def plain(x: float) -> float:
        return x

    assert not isinstance(jit.kernel(plain).compiled._cache, cache.KernelCache)  # type: ignore[attr-defined]


def test_a_folder_that_others_can_write_to_is_not_used(filled: Path) -> None:
    filled.chmod(0o770)
    out, err = ran(filled)
    assert out == f"{ANSWER} 0"
    assert f"others can write to {filled} (mode 0770)" in err
    assert len(err.splitlines()) == 1


def test_a_subfolder_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    cache.Store(tmp_path, DIGEST).folder.chmod(0o702)
    with pytest.raises(OSError, match="others can write to"):
        cache.Store(tmp_path, DIGEST)


def test_a_folder_or_file_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = cache.Store(tmp_path, DIGEST)
    store.write("a", b"code")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert store.read("a") is None
    with pytest.raises(OSError, match="belongs to another user"):
        cache.Store(tmp_path, DIGEST)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_given_to_another_user_is_said_and_not_used(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "cache", 0o700)
    os.chown(tmp_path / "cache", 12345, 12345)
    out, err = ran(tmp_path / "cache")
    assert out == f"{ANSWER} 0"
    assert f"{tmp_path / 'cache'} belongs to another user" in err


def test_a_link_in_place_of_the_subfolder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / DIGEST).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="is not a folder"):
        cache.Store(tmp_path, DIGEST)


def test_no_folder_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out, err = ran(tmp_path / "file" / "cache")
    assert out == f"{ANSWER} 0"
    assert "compiled kernels are not kept: Not a directory" in err


def test_no_home_folder(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "absent"), "XDG_CACHE_HOME": ""}
    script = "import os; del os.environ['DISTAGG_CACHE_DIR']\n" + RUN
    (tmp_path / "absent").touch()  # nothing can be made below a file
    assert ran(tmp_path, script, **home)[0] == f"{ANSWER} 0"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = cache.Store(tmp_path, DIGEST)
    opened = lambda **_: (os.open("/dev/full", os.O_WRONLY), str(tmp_path / "gone"))  # noqa: E731
    monkeypatch.setattr(cache.tempfile, "mkstemp", opened)
    store.write("a", b"code")
    store.write("b", b"code")
    said = capsys.readouterr().err
    assert said.count("No space left on device") == 1
    assert store.read("a") is None
    assert files(tmp_path) == []


def test_a_folder_that_can_only_be_read_serves_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.Store(tmp_path, DIGEST).write("a", b"code")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(cache.tempfile, "mkstemp", refuse)
    monkeypatch.setattr(cache.os, "utime", refuse)
    store = cache.Store(tmp_path, DIGEST)
    store.write("b", b"code")
    assert store.read("a") == b"code"
    assert "Read-only file system" in capsys.readouterr().err


def test_a_damaged_file_is_compiled_again_and_replaced(filled: Path) -> None:
    (file,) = files(filled)
    flipped = bytearray(file.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    file.write_bytes(flipped)
    assert ran(filled) == (f"{ANSWER} 0", "")
    assert ran(filled) == (f"{ANSWER} 1", "")


def test_any_damage_is_seen(tmp_path: Path) -> None:
    store = cache.Store(tmp_path, DIGEST)
    store.write("a", bytes(range(200)))
    whole = (store.folder / "a").read_bytes()
    for at in range(len(whole)):
        (store.folder / "a").write_bytes(whole[:at])
        assert store.read("a") is None
        (store.folder / "a").write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        assert store.read("a") is None


def test_code_that_cannot_be_loaded_is_compiled(filled: Path) -> None:
    """The checksum is right and the content is not what it should be."""
    (file,) = files(filled)
    file.write_bytes(hashlib.sha256(b"no pickle").digest() + b"no pickle")
    assert ran(filled) == (f"{ANSWER} 0", "")


def test_states_that_nobody_uses_are_removed(tmp_path: Path) -> None:
    old, recent, other = tmp_path / ("a" * 32), tmp_path / ("b" * 32), tmp_path / "something else"
    for folder, days in ((old, 40), (recent, 20), (other, 40)):
        folder.mkdir()
        (folder / "code").touch()
        os.utime(folder, (time.time() - days * 86_400,) * 2)
    cache.Store(tmp_path, DIGEST)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == sorted((DIGEST, recent.name, other.name))


def test_vector_logarithms_stay_off_for_kernels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that compiles another keeps them off to its own end; then they are everybody's again."""
    import llvmlite.binding

    told: list[str] = []
    monkeypatch.setattr(llvmlite.binding, "set_option", lambda name, option: told.append(option.split("=")[1]))

    def outer(signature: str) -> str:
        jit._compile_without_svml(lambda inner: told.append(inner), "callee")
        told.append(signature)
        return "code"

    assert jit._compile_without_svml(outer, "caller") == "code"
    assert told == ["none", "none", "callee", "caller", "SVML"]


def test_warm_fills_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["warm", "copeland", "--json"]) == 0
    assert '"copeland"' in capsys.readouterr().out
    assert main(["warm", "copelant"]) == 2
    monkeypatch.setattr(cache, "store", lambda: None)
    assert main(["warm", "copeland"]) == 4
    assert "no usable cache of compiled kernels" in capsys.readouterr().err
