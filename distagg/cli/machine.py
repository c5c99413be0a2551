"""The commands about this machine and its cluster: doctor, warm, certificates."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from distagg.cli.commands import Argument, Call, command, flag, option, say
from distagg.errors import InfrastructureError, UsageError
from distagg.reports.terminal import render_table
from distagg.storage.paths import local


@command(
    "doctor",
    flag("--no-cluster", help="do not start a worker"),
    option("--scheduler", metavar="ADDRESS", help="check the Dask cluster at this address as well"),
    option("--scheduler-file", metavar="FILE", help="check the Dask cluster whose scheduler wrote this file"),
    option("--path", metavar="DATASET", help="with a scheduler: check that every worker can read this"),
    flag(
        "--clean",
        help="instead of checking, remove what killed processes of this host left in this folder, below it and "
        "among temporary files: unfinished outputs, which are hidden files and folders",
    ),
    cluster=False,
    examples=(
        "distagg doctor",
        "distagg doctor --clean",
        "distagg doctor --scheduler tls://node-1.example:8786 --path /shared/data",
    ),
)
def doctor_command(
    call: Call, no_cluster: bool, scheduler: str | None, scheduler_file: str | None, path: str | None, clean: bool
) -> None:
    from distagg.pipeline.doctor import BAD, examine

    if clean:
        _clean(call)
        return
    address = dataclasses.replace(call, scheduler=scheduler, scheduler_file=scheduler_file).address()
    if path is not None and address is None:
        raise UsageError("found --path without --scheduler, expected both: it is about the workers of a cluster")
    rows = examine(cluster=not no_cluster and address is None)
    if address is not None:
        from distagg.engine.dask import remote_cluster
        from distagg.pipeline.doctor_cluster import examine_cluster

        with remote_cluster(address, check=False) as runner:
            rows += examine_cluster(runner, path)
    body = [list(row.values()) for row in rows]
    call.show(rows, render_table(["check", "state", "found", "what to do"], body, "llll"))
    bad = [row["check"] for row in rows if row["state"] == BAD]
    if bad:
        where = "this machine" if address is None else "this machine or the cluster"
        raise InfrastructureError(f"{where} cannot run distagg: {', '.join(bad)}")


def _clean(call: Call) -> None:
    """Remove what killed processes have left."""
    from distagg.storage.owners import abandoned_in, remove_path

    paths = list(dict.fromkeys(abandoned_in(Path.cwd())))
    for path in paths:
        remove_path(path)
    kept = [path for path in paths if path.exists()]
    removed = [str(path) for path in paths if path not in kept]
    call.show({"removed": removed}, "\n".join(removed), note=f"removed {len(removed)} paths of killed processes")
    if kept:
        raise InfrastructureError(f"{kept[0]} cannot be removed; check its permissions")


@command(
    "warm",
    Argument(
        "models",
        metavar="[MODEL...]",
        nargs=-1,
        help="models to compile for (default: all, with metrics and completions)",
    ),
    cluster=False,
    examples=("distagg warm", "distagg warm crf kemeny"),
)
def warm_command(call: Call, models: tuple[str, ...]) -> None:
    from distagg.pipeline.warm import warm

    took: dict[str, float] = {}

    def tell(name: str, seconds: float) -> None:
        took[name] = round(seconds, 2)
        say(f"{name}: {seconds:.1f} s")

    folder = warm(models, tell)
    call.show({"folder": str(folder), "seconds": took}, f"compiled code: {folder}")


@command(
    "certificates",
    Argument("folder", metavar="FOLDER", help="the folder to create; DASK_CONFIG=FOLDER uses it"),
    option("--hosts", metavar="a,b,...", help="host names and addresses in the certificate"),
    option("--days", type=int, default=365, metavar="N", help="days of validity (default 365)"),
    option("--at", metavar="PATH", help="path to which FOLDER will be copied on the hosts (default: FOLDER)"),
    cluster=False,
    examples=("distagg certificates certificates --hosts node-1.example,node-2.example",),
)
def certificates_command(call: Call, folder: str, hosts: str | None, days: int, at: str | None) -> None:
    from distagg.engine.certificates import make_certificates

    names = [] if hosts is None else [host.strip() for host in hosts.split(",")]
    make_certificates(local(folder, "certificates"), names, days=days, at=at)
    call.show(
        {"folder": folder, "hosts": names, "days": days},
        note=f"created {folder}; copy it to every host and set: export DASK_CONFIG={folder}",
    )
