"""Pods and claims in a few words. Values in, documents out; nothing is sent anywhere."""

from __future__ import annotations

from typing import Any

from tests.cluster.kubectl import Object

API = "resource.k8s.io/v1"
DRIVER = "gpu.claimd.dev"
# Ends by itself when told to from inside, so that a container can be made to restart.
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
    """Claims are named as the pod names them, `claim` or `claim/request`."""
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
    """`claims` leads from the pod's own names to claims; with a leading `=`, to templates."""
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
