"""TLS certificates for one cluster, created by openssl, and the Dask configuration that refers to them.

Each cluster has its own certificate authority. It signs one certificate that the scheduler, workers and clients share,
and its key is then deleted: a process belongs to the cluster if it can read the folder, and nobody can sign another
certificate later. The folder is a Dask configuration folder: a process only needs ``DASK_CONFIG=FOLDER``.
"""

from __future__ import annotations

import ipaddress
import re
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distagg.engine.dask import SETTINGS
from distagg.errors import InfrastructureError, UsageError, cut
from distagg.storage.atomic import staged_directory

CONFIGURATION = "distagg.yaml"
CURVE = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
MOST_DAYS = 3650
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")
_ADDRESS = re.compile(r"[0-9.]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


def make_certificates(folder: Path, hosts: Sequence[str] = (), *, days: int = 365, at: str | None = None) -> None:
    """Write ca.pem, cert.pem, key.pem and the configuration; ``at`` is the path of the folder on the hosts.

    Dask checks who signed a certificate, not the host names in it; ``hosts`` are for programs that check them.
    """
    if not 1 <= days <= MOST_DAYS:
        raise UsageError(f"--days: found {days}, expected a whole number from 1 to {MOST_DAYS}")
    names = [alternative_name(host) for host in hosts]
    with staged_directory(folder) as staging:
        staging.chmod(0o700)
        usage = "extendedKeyUsage=serverAuth,clientAuth\n"
        (staging / "extensions").write_text(usage + (f"subjectAltName={','.join(names)}\n" if names else ""))
        authority = f"/CN=distagg cluster {uuid.uuid4().hex[:12]}"
        _openssl(staging, f"req -x509 {CURVE} -keyout authority -out ca.pem -days {days} -subj", authority)
        _openssl(staging, f"req -new {CURVE} -keyout key.pem -out request -subj /CN=distagg")
        signing = "-CA ca.pem -CAkey authority -CAserial serial -CAcreateserial -extfile extensions"
        _openssl(staging, f"x509 -req -in request {signing} -days {days} -out cert.pem")
        for name in ("authority", "request", "serial", "extensions"):
            (staging / name).unlink()
        (staging / "key.pem").chmod(0o600)
        (staging / CONFIGURATION).write_text(configuration(at or str(folder.absolute())), encoding="utf-8")


def configuration(folder: str) -> str:
    """Dask's settings for a cluster of several hosts, as YAML."""
    import yaml

    tls: dict[str, Any] = {"ca-file": f"{folder}/ca.pem", "min-version": 1.3}
    for role in ("scheduler", "worker", "client"):
        tls[role] = {"cert": f"{folder}/cert.pem", "key": f"{folder}/key.pem"}
    nested: dict[str, Any] = {}
    for key, value in {**SETTINGS, "distributed.comm.require-encryption": True, "distributed.comm.tls": tls}.items():
        *path, last = key.split(".")
        inner = nested
        for name in path:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return yaml.safe_dump(nested)


def alternative_name(host: str) -> str:
    """A host name or address as certificates name it; a UsageError for anything else.

    >>> alternative_name("node-1.example"), alternative_name("::1")
    ('DNS:node-1.example', 'IP:::1')
    """
    if _ADDRESS.fullmatch(host):
        try:
            return f"IP:{ipaddress.ip_address(host)}"
        except ValueError:
            pass
    elif _HOST.fullmatch(host) and len(host) <= 253:
        return f"DNS:{host}"
    raise UsageError(f"--hosts: found '{cut(host, 80)}', expected host names or addresses separated by commas")


def _openssl(folder: Path, words: str, *last: str) -> None:
    """Run openssl with the words of a line; ``last`` are arguments that may contain spaces."""
    arguments = [*words.split(), *last]
    try:
        done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise InfrastructureError("openssl is needed to create certificates and was not found; install it") from None
    if done.returncode:
        message = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise InfrastructureError(f"openssl {arguments[0]} failed: {message}")
