"""The Kubernetes manifests against their schemas and against each other; no Kubernetes runs here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cluster" / "kubernetes"
MANIFESTS = {file.stem: yaml.safe_load(file.read_text()) for file in sorted(FOLDER.glob("*.yaml"))}
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "number": (int, float)}


def objections(value: Any, schema: dict[str, Any], where: str = "") -> Iterator[str]:
    """What a strict API server would refuse: wrong types, missing and unknown fields, values not in a list."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str):
            yield f"{where}: {value!r} is neither a number nor text"
        return
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{where}: {value!r} is not {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is not one of {schema['enum']}"
    if kind == "array":
        for n, one in enumerate(value):
            yield from objections(one, schema.get("items", {}), f"{where}[{n}]")
    if kind == "object":
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (f"{where}.{name} is missing" for name in schema.get("required", ()) if name not in value)
        for name, one in value.items():
            if name in known:
                yield from objections(one, known[name], f"{where}.{name}")
            elif isinstance(others, dict):
                yield from objections(one, others, f"{where}.{name}")
            elif known and not others and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{where}.{name} is unknown"


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
        "type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "port": {"x-kubernetes-int-or-string": True}},
    }  # fmt: skip
    assert list(objections({"name": "a", "port": 1}, schema)) == []
    assert list(objections({"port": [], "nmae": 1}, schema)) == [
        ".name is missing", ".port: [] is neither a number nor text", ".nmae is unknown",
    ]  # fmt: skip


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
        assert container["image"] == "distagg:0.1.0"


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
