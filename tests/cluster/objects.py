"""Builds the documents of pods and claims. This module sends no requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.cluster.kubectl import Object
from tests.cluster.rig.places import IMAGE

API = "resource.k8s.io/v1"
DRIVER = "gpu.claimd.dev"
# The container ends when a command in it creates /tmp/end, so that a test can make it restart.
WAIT = ["sh", "-c", "trap 'exit 0' TERM; while [ ! -e /tmp/end ]; do sleep 0.1; done"]


def request(name: str = "gpu", device_class: str = DRIVER, **exactly: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def devices(*requests: Object, **rest: Any) -> Object:
    return {"devices": {"requests": list(requests or (request(),)), **rest}}


def claim(name: str, spec: Object | None = None) -> Object:
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": spec or devices(),
    }


def template(name: str, spec: Object | None = None) -> Object:
    inner = {"spec": spec or devices()}
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": inner,
    }


def container(name: str = "main", *claims: str, command: list[str] | None = None) -> Object:
    """Builds a container. `claims` are the pod's names of claims, as `claim` or `claim/request`."""
    references = [dict(zip(("name", "request"), each.split("/"), strict=False)) for each in claims]
    return {
        "name": name,
        "image": "busybox",
        "imagePullPolicy": "IfNotPresent",
        "command": command or WAIT,
        "resources": {"claims": references} if references else {},
    }


def pod(
    name: str,
    node: str,
    claims: dict[str, str] | None = None,
    containers: list[Object] | None = None,
) -> Object:
    """Builds a pod. `claims` maps the pod's names to claims, or with a leading `=` to templates."""
    named = claims or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "resourceClaims": [
                {"name": key, "resourceClaimTemplateName": value[1:]}
                if value.startswith("=")
                else {"name": key, "resourceClaimName": value}
                for key, value in named.items()
            ],
            "containers": containers or [container("main", *named)],
        },
    }


def doctor_pod(node: str) -> Object:
    """Returns deploy/doctor/pod.yaml for a node of the rig."""
    root = Path(__file__).resolve().parents[2]
    document: Object = yaml.safe_load((root / "deploy/doctor/pod.yaml").read_text())

    # Only the host's network leads to the rig's API server.
    document["spec"] |= {"nodeName": node, "hostNetwork": True}
    (doctor,) = document["spec"]["containers"]
    doctor |= {"image": IMAGE, "imagePullPolicy": "Never"}
    doctor["env"][0]["value"] = node
    return document
