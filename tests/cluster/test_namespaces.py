"""Hosts on one machine: network namespaces joined by cables. A job runs across them with TLS; one is cut off; one can
reach the scheduler alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distagg.cli.main import main

HERE = Path(__file__).parent
HOSTS = {"a": "10.77.0.1", "b": "10.77.0.2"}
SCHEDULER = f"tls://{HOSTS['a']}:8786"


def missing() -> str:
    """Why two hosts cannot be made here; empty when they can."""
    if os.geteuid():
        return "not root: network namespaces cannot be made"
    if not shutil.which("ip") or not shutil.which("openssl"):
        return "ip (iproute2) or openssl is not installed"
    tried = subprocess.run(["ip", "netns", "add", f"try-{os.getpid()}"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"no network namespaces: {tried.stderr.strip()}"
    ip("netns", "del", f"try-{os.getpid()}")
    return ""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=True)


def space(host: str) -> str:
    return f"distagg-{host}-{os.getpid()}"


class Hosts:
    """Two namespaces; a scheduler and a worker on the first, a worker on the second.

    ``apart``: both workers are on the second, and a third, for the driver, has a way to the scheduler alone.
    """

    def __init__(self, folder: Path, *, apart: bool = False) -> None:
        self.apart = apart
        self.folder, self.started = folder, {}  # type: ignore[var-annotated]
        self.certificates = folder / "certificates"
        assert main(["certificates", str(self.certificates), "--hosts", ",".join(HOSTS.values())]) == 0

    def make(self) -> None:
        for host in HOSTS:
            ip("netns", "add", space(host))
            ip("-n", space(host), "link", "set", "lo", "up")
        ip("link", "add", "cable", "netns", space("a"), "type", "veth", "peer", "name", "cable", "netns", space("b"))
        for host, address in HOSTS.items():
            ip("-n", space(host), "addr", "add", f"{address}/24", "dev", "cable")
            ip("-n", space(host), "link", "set", "cable", "up")
        if self.apart:
            ip("netns", "add", space("driver"))
            ip(
                "link",
                "add",
                "second",
                "netns",
                space("a"),
                "type",
                "veth",
                "peer",
                "name",
                "only",
                "netns",
                space("driver"),
            )
            for host, cable, address in (("a", "second", "10.78.0.1/24"), ("driver", "only", "10.78.0.2/24")):
                ip("-n", space(host), "addr", "add", address, "dev", cable)
                ip("-n", space(host), "link", "set", cable, "up")
            ip("-n", space("driver"), "link", "set", "lo", "up")
            ip("-n", space("driver"), "route", "add", f"{HOSTS['a']}/32", "via", "10.78.0.1")
        arguments = {
            "scheduler": ("a", "scheduler", "--protocol", "tls", "--host", HOSTS["a"], "--port", "8786"),
            **{
                f"worker {n}": (host, "worker", SCHEDULER, "--host", HOSTS[host], "--nthreads", "1")
                for n, host in enumerate("bb" if self.apart else HOSTS)
            },
        }
        for name, (host, *rest) in arguments.items():
            self.start(name, host, "-m", "dask", *rest, "--dashboard-address", "127.0.0.1:0")

    def start(self, name: str, host: str, *arguments: str, certificates: bool = True) -> subprocess.Popen[str]:
        environment = {  # a cut goes unnoticed for 11 seconds, the least that Dask takes; its default is 30
            **os.environ,
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "11s",
            "NUMBA_NUM_THREADS": "1",
            **({"DASK_CONFIG": str(self.certificates)} if certificates else {}),
        }
        with (self.folder / f"{name}.log").open("w") as log:
            self.started[name] = subprocess.Popen(
                ["ip", "netns", "exec", space(host), sys.executable, *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self.started[name]

    def cut(self) -> None:
        ip("-n", space("a"), "link", "set", "cable", "down")

    def close(self) -> None:
        for process in reversed(self.started.values()):  # one by one: workers without a scheduler take long to leave
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        for host in (*HOSTS, *(("driver",) if self.apart else ())):
            subprocess.run(["ip", "netns", "del", space(host)], capture_output=True, check=False)


@pytest.fixture
def hosts(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Hosts]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    made = Hosts(tmp_path, apart=getattr(request, "param", False))
    try:
        made.make()
        yield made
    finally:
        made.close()


def worked(notes: Path) -> list[tuple[int, str]]:
    """When, and by which process, chunks were worked on."""
    return sorted((int(file.name.split("-")[0]), file.name.split("-")[1]) for file in notes.iterdir())


@pytest.mark.cluster
def test_a_command_runs_across_and_strangers_do_not(hosts: Hosts, planted: Path, tmp_path: Path) -> None:
    rank = ("-m", "distagg", "rank", "borda", str(planted), "-o")
    there = hosts.start("driver", "b", *rank, str(tmp_path / "there.csv"), "--scheduler", SCHEDULER)
    assert there.wait(180) == 0, (tmp_path / "driver.log").read_text()
    assert main([*rank[2:], str(tmp_path / "here.csv")]) == 0
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()
    plain = "from distributed import Client\nClient('tcp://10.77.0.1:8786', timeout=5)"
    assert hosts.start("stranger", "b", "-c", plain, certificates=False).wait(60) != 0
    last = (tmp_path / "stranger.log").read_text().splitlines()[-1]
    assert "CommClosedError" in last or "OSError" in last, last


@pytest.mark.cluster
@pytest.mark.parametrize("mode", ["rounds", "queries"])
def test_a_host_cut_off_costs_time_not_answers(mode: str, hosts: Hosts, planted: Path, tmp_path: Path) -> None:
    script, notes = str(HERE / "two_hosts.py"), tmp_path / "notes"
    notes.mkdir()
    driver = hosts.start("driver", "a", script, SCHEDULER, str(planted), mode, str(notes))
    assert driver.stdout is not None
    assert driver.stdout.readline().strip() == "started", (tmp_path / "driver.log").read_text()
    deadline = time.monotonic() + 60
    while len({who for _, who in worked(notes)}) < 2 or len(worked(notes)) < 30:
        assert time.monotonic() < deadline, "both hosts should be at work"
        time.sleep(0.05)
    hosts.cut()
    at = time.time_ns()
    found = driver.stdout.readlines()[-1].split()
    assert driver.wait(180) == 0, (tmp_path / "driver.log").read_text()
    before, after = ({who for when, who in worked(notes) if (when > at) == late} for late in (False, True))
    assert len(before) == 2
    assert after  # there was work left when the cable was cut
    expected = subprocess.run(
        [sys.executable, script, "inline", str(planted), mode, ""], capture_output=True, text=True, check=True
    )
    assert found == expected.stdout.splitlines()[-1].split()


@pytest.mark.cluster
@pytest.mark.parametrize("hosts", [True], indirect=True)
def test_a_driver_that_reaches_the_scheduler_alone(hosts: Hosts, planted: Path, tmp_path: Path) -> None:
    probe = subprocess.run(
        ["ip", "netns", "exec", space("driver"), "ip", "route", "get", HOSTS["b"]], capture_output=True, check=False
    )
    assert probe.returncode  # there is no way to the workers
    script = str(HERE / "two_hosts.py")
    for mode in ("rounds", "queries"):
        notes = tmp_path / mode
        notes.mkdir()
        driver = hosts.start("driver", "driver", script, SCHEDULER, str(planted), mode, str(notes))
        found, _ = driver.communicate(timeout=180)
        assert driver.returncode == 0, (tmp_path / "driver.log").read_text()
        expected = subprocess.run(
            [sys.executable, script, "inline", str(planted), mode, ""], capture_output=True, text=True, check=True
        )
        assert found == expected.stdout  # the same bits, and no worker was given up
        assert len({who for _, who in worked(notes)}) == 2
