"""The Kubernetes manifests against their schemas and against each other; no Kubernetes runs here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from objections import objections

import distagg

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cluster" / "kubernetes"
MANIFESTS = {file.stem: yaml.safe_load(file.read_text()) for file in sorted(FOLDER.glob("*.yaml"))}


def crd(kind: str) -> dict[str, Any]:
    """The schema of one of the operator's kinds, as dask-kubernetes ships it."""
    within = f"dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds/{kind.lower()}.yaml"
    found = sorted(ROOT.glob(f".venv-s3/lib/python*/site-packages/{within}"))
    if not found:
        pytest.skip("the operator's schemas are not here: 'make test' installs them into .venv-s3")
    body = yaml.safe_load(found[-1].read_text())
    (version,) = body["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["cluster", "job"])
def test_the_operators_schemas_hold(name: str) -> None:
    manifest = MANIFESTS[name]
    schema = crd(manifest["kind"])
    spec = {"type": "object", "properties": {"spec": schema["properties"]["spec"]}, "required": ["spec"]}
    assert list(objections({"spec": manifest["spec"]}, spec)) == []


def test_the_scheduled_pods_schema_holds() -> None:
    pod = crd("DaskJob")["properties"]["spec"]["properties"]["job"]["properties"]["spec"]
    assert list(objections(MANIFESTS["scheduled"]["spec"]["jobTemplate"]["spec"]["template"]["spec"], pod)) == []


def test_the_check_can_object() -> None:
    schema = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "port": {"x-kubernetes-int-or-string": True}},
    }
    assert list(objections({"name": "a", "port": 1}, schema)) == []
    assert list(objections({"port": [], "nmae": 1}, schema)) == [
        ".name is missing",
        ".port: [] is neither a number nor text",
        ".nmae is unknown",
    ]


def pods(value: Any) -> Iterator[dict[str, Any]]:
    """Every pod's specification inside a manifest."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for one in value.values():
            yield from pods(one)


def test_every_pod_has_the_certificates_and_no_rights() -> None:
    found = [pod for manifest in MANIFESTS.values() for pod in pods(manifest)]
    assert len(found) == 2 + 3 + 1
    for pod in found:
        (container,) = pod["containers"]
        assert {"name": "DASK_CONFIG", "value": "/certificates"} in container["env"]
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"]: mounted[volume["name"]] for volume in pod["volumes"]}
        assert mounted["certificates"] == "/certificates"
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["image"] == f"distagg:{distagg.__version__}"


def test_addresses_are_encrypted_and_those_of_the_service() -> None:
    for name, cluster in {"cluster": "distagg", "job": "distagg-job", "scheduled": "distagg"}.items():
        text = (FOLDER / f"{name}.yaml").read_text()
        assert f"tls://{cluster}-scheduler:8786" in text  # the operator names the service so
        assert "tcp://" not in text
    for spec in (MANIFESTS["cluster"]["spec"], MANIFESTS["job"]["spec"]["cluster"]["spec"]):
        arguments = spec["scheduler"]["spec"]["containers"][0]["args"]
        assert arguments[arguments.index("--dashboard-address") + 1].startswith("127.0.0.1:")
        assert arguments[arguments.index("--protocol") + 1] == "tls"
    names = [MANIFESTS["cluster"]["metadata"]["name"], MANIFESTS["job"]["metadata"]["name"]]
    assert names == ["distagg", "distagg-job"]


def test_only_what_may_pass_is_tried_again() -> None:
    spec = MANIFESTS["scheduled"]["spec"]
    assert (MANIFESTS["scheduled"]["apiVersion"], MANIFESTS["scheduled"]["kind"]) == ("batch/v1", "CronJob")
    assert spec["concurrencyPolicy"] == "Forbid"
    job = spec["jobTemplate"]["spec"]
    refused, drained = job["podFailurePolicy"]["rules"]
    assert refused["onExitCodes"]["values"] == [1, 2, 3, 70]
    assert refused["onExitCodes"]["containerName"] == job["template"]["spec"]["containers"][0]["name"]
    assert drained["action"] == "Ignore"
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # podFailurePolicy wants it
    minute, hour, *rest = spec["schedule"].split()
    assert 0 <= int(minute) < 60
    assert 0 <= int(hour) < 24
    assert rest == ["*", "*", "*"]
