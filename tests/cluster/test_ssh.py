"""The SSH recipe, run on this machine with an ssh that stays here: TLS, who is refused, what listens where."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from distagg.cli.main import main

RECIPE = Path(__file__).parents[2] / "cluster" / "ssh"
HOST, PORT = "127.0.0.1", 18786
ADDRESS = f"tls://{HOST}:{PORT}"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed: no certificates"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def certificates(folder: Path) -> Path:
    made = folder / "certificates"
    assert main(["certificates", str(made), "--hosts", f"{HOST},node-1.example"]) == 0
    return made


@pytest.fixture(scope="module")
def cluster(folder: Path, certificates: Path) -> Iterator[list[psutil.Process]]:
    """A scheduler and two workers, started and stopped by the recipe."""
    ssh = folder / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\nshift 3\nexec bash -c "$*"\n')  # ssh -o BatchMode=yes HOST COMMAND
    ssh.chmod(0o755)
    (folder / "hosts").write_text(f"# the only one\n{HOST}\n\n")
    state = folder / "state"
    environment = {
        **os.environ,
        "PATH": f"{ssh.parent}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "PORT": str(PORT),
        "STATE": str(state),
    }
    started = subprocess.run(
        [RECIPE / "start.sh", folder / "hosts", certificates, "2"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert started.stdout.strip() == ADDRESS
    processes = [psutil.Process(int(file.read_text())) for file in sorted(state.glob("*.pid"))]
    yield processes
    subprocess.run([RECIPE / "stop.sh", folder / "hosts"], env=environment, check=True, timeout=60)
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not alive


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def rank(dataset: Path, target: Path, *where: str, config: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"DASK_CONFIG": str(config)} if config else {})}
    return subprocess.run(
        [sys.executable, "-m", "distagg", "rank", "rrf", str(dataset), "-o", str(target), *where],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_a_job_runs_on_it_with_the_same_bytes(
    cluster: list[psutil.Process], certificates: Path, planted: Path, tmp_path: Path
) -> None:
    done = rank(planted, tmp_path / "there.csv", "--scheduler", ADDRESS, config=certificates)
    assert done.returncode == 0, done.stderr
    assert rank(planted, tmp_path / "here.csv").returncode == 0
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


TRY = """
from distributed import Client
try:
    with Client({address!r}, timeout=10) as client:
        print("let in", client.nthreads())
except (OSError, TimeoutError, TypeError, RuntimeError, ValueError) as error:
    print("refused", type(error).__name__)
"""


def test_who_is_refused(cluster: list[psutil.Process], certificates: Path, tmp_path: Path) -> None:
    let_in = python(TRY.format(address=ADDRESS), DASK_CONFIG=str(certificates))
    assert let_in.stdout.startswith("let in"), let_in.stderr
    plain = python(TRY.format(address=ADDRESS.replace("tls", "tcp")))
    assert plain.stdout.startswith("refused"), plain.stdout
    without = python(TRY.format(address=ADDRESS))
    assert without.stdout.startswith("refused"), without.stdout
    assert main(["certificates", str(tmp_path / "others"), "--hosts", HOST]) == 0
    stranger = python(TRY.format(address=ADDRESS), DASK_CONFIG=str(tmp_path / "others"))
    assert stranger.stdout.startswith("refused"), stranger.stdout


def test_its_own_members_speak_nothing_plain(certificates: Path) -> None:
    found = python(TRY.format(address=f"tcp://{HOST}:{PORT}"), DASK_CONFIG=str(certificates))
    assert found.stdout.strip() == "refused RuntimeError"  # 'encryption required by Dask configuration'


def test_without_certificates_the_remedy_is_named(planted: Path, tmp_path: Path) -> None:
    done = rank(planted, tmp_path / "out.csv", "--scheduler", ADDRESS)
    assert done.returncode == 2
    assert "DASK_CONFIG=FOLDER" in done.stderr
    assert not (tmp_path / "out.csv").exists()


def test_dashboards_listen_on_loopback(folder: Path, certificates: Path) -> None:
    """A scheduler and a worker on every interface, with the recipe's dashboard options: only TLS is open."""
    lines = (RECIPE / "start.sh").read_text()
    assert "--dashboard-address 127.0.0.1:8787" in lines
    assert "--dashboard-address 127.0.0.1:0" in lines
    environment = {**os.environ, "DASK_CONFIG": str(certificates)}
    port = str(PORT + 1)
    commands = [
        ["scheduler", "--protocol", "tls", "--port", port, "--dashboard-address", "127.0.0.1:0"],
        ["worker", f"tls://{HOST}:{port}", "--nthreads", "1", "--dashboard-address", "127.0.0.1:0"],
    ]
    started = [
        subprocess.Popen([sys.executable, "-m", "dask", *command], env=environment, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    try:
        ports = open_ports([psutil.Process(one.pid) for one in started])
        assert ports["elsewhere"]
        assert ports["loopback"]
        for number in ports["elsewhere"]:
            assert speaks_tls(number, certificates), f"port {number} is open to all and speaks no TLS"
    finally:
        for one in reversed(started):
            one.terminate()
        for one in started:
            one.wait(60)


def open_ports(processes: list[psutil.Process]) -> dict[str, set[int]]:
    """Listening ports once scheduler, nanny and worker all listen: on loopback, and on other interfaces."""
    deadline = time.monotonic() + 90
    while True:
        every = [p for process in processes for p in (process, *process.children(recursive=True))]
        found = [c for p in every for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        loopback = {c.laddr.port for c in found if c.laddr.ip in ("127.0.0.1", "::1")}
        elsewhere = {c.laddr.port for c in found} - loopback
        # scheduler, its dashboard, nanny, worker, its dashboard
        if len(loopback) + len(elsewhere) >= 5 or time.monotonic() > deadline:
            return {"loopback": loopback, "elsewhere": elsewhere}
        time.sleep(0.3)


def speaks_tls(port: int, certificates: Path) -> bool:
    import socket
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(certificates / "ca.pem")
    context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
    try:
        with socket.create_connection((HOST, port), timeout=10) as plain, context.wrap_socket(plain) as wrapped:
            return wrapped.version() == "TLSv1.3"
    except (ssl.SSLError, OSError):
        return False
