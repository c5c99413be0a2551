"""Certificates of one cluster, made by openssl, and the Dask configuration that names them.

A cluster has an authority of its own, whose key is thrown away once it has signed the one certificate that scheduler,
workers and clients share: whoever holds the folder belongs to the cluster, nobody else gets in, and nothing can be
signed later. The folder is a Dask configuration folder: ``DASK_CONFIG=FOLDER`` is all that a process needs.
"""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distagg.engine.dask import SETTINGS
from distagg.errors import InfrastructureError, UsageError
from distagg.storage.atomic import staged_directory

CONFIGURATION = "distagg.yaml"
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
HOST = re.compile(r"[A-Za-z0-9*]([A-Za-z0-9.-]*[A-Za-z0-9])?$")
ADDRESS = re.compile(r"[0-9.]+$|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*$")


def make_certificates(folder: Path, hosts: Sequence[str] = (), *, days: int = 365, at: str | None = None) -> None:
    """Write ca.pem, cert.pem, key.pem and the configuration; ``at`` is where the folder will be on the hosts.

    Dask checks who signed a certificate, not the names in it; ``hosts`` are for other programs that do.
    """
    if days < 1:
        raise UsageError(f"--days: found {days}, expected a whole number of at least 1")
    names = [_alternative(host) for host in hosts]
    with staged_directory(folder) as staging:
        staging.chmod(0o700)
        usage = "extendedKeyUsage=serverAuth,clientAuth\n"
        (staging / "extensions").write_text(usage + (f"subjectAltName={','.join(names)}\n" if names else ""))
        _openssl(staging, "req", "-x509", *CURVE, "-keyout", "authority", "-out", "ca.pem", "-days", str(days),
                 "-subj", f"/CN=distagg cluster {uuid.uuid4().hex[:12]}")  # fmt: skip
        _openssl(staging, "req", "-new", *CURVE, "-keyout", "key.pem", "-out", "request", "-subj", "/CN=distagg")
        _openssl(staging, "x509", "-req", "-in", "request", "-CA", "ca.pem", "-CAkey", "authority",
                 "-CAserial", "serial", "-CAcreateserial", "-days", str(days), "-extfile", "extensions",
                 "-out", "cert.pem")  # fmt: skip
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


def _alternative(host: str) -> str:
    if ADDRESS.match(host):
        return f"IP:{host}"
    if not HOST.match(host):
        raise UsageError(f"--hosts: found '{host}', expected host names or addresses with commas between them")
    return f"DNS:{host}"


def _openssl(folder: Path, *arguments: str) -> None:
    try:
        done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise InfrastructureError("certificates are made by openssl, and there is none here; install it") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise InfrastructureError(f"openssl {arguments[0]} failed: {said}")
