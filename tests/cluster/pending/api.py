"""Sends requests to the rig's API server over one connection.

This module knows nothing about scheduling.
"""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

from tests.cluster.rig.places import API_ADDRESS, PKI

Object = dict[str, Any]

_GROUPS = {
    "Namespace": ("/api/v1", "namespaces", False),
    "Node": ("/api/v1", "nodes", False),
    "Pod": ("/api/v1", "pods", True),
    "Event": ("/api/v1", "events", True),
    "ServiceAccount": ("/api/v1", "serviceaccounts", True),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims", True),
    "DeviceClass": ("/apis/resource.k8s.io/v1", "deviceclasses", False),
    "ResourceSlice": ("/apis/resource.k8s.io/v1", "resourceslices", False),
    "ResourceClaim": ("/apis/resource.k8s.io/v1", "resourceclaims", True),
    "ResourceClaimTemplate": ("/apis/resource.k8s.io/v1", "resourceclaimtemplates", True),
    "DeviceTaintRule": ("/apis/resource.k8s.io/v1", "devicetaintrules", False),
    "PodGroup": ("/apis/scheduling.k8s.io/v1beta1", "podgroups", True),
    "PriorityClass": ("/apis/scheduling.k8s.io/v1", "priorityclasses", False),
}


class Refused(Exception):
    """Reports that the API server refused a request, with the server's message."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Api:
    """Asks the API server as the administrator, one request at a time."""

    def __init__(self) -> None:
        context = ssl.create_default_context(cafile=str(PKI / "ca.crt"))
        context.load_cert_chain(PKI / "admin.crt", PKI / "admin.key")
        self._connection = http.client.HTTPSConnection(API_ADDRESS, context=context, timeout=60)

    def request(self, method: str, path: str, body: object = None, kind: str = "") -> Object:
        """Sends a request and returns the parsed answer. `kind` is the content type."""
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": kind or "application/json"}
        self._connection.request(method, path, content, headers)
        response = self._connection.getresponse()
        answer: Object = json.loads(response.read() or b"{}")
        if response.status >= 400:
            raise Refused(response.status, str(answer.get("message", answer)))
        return answer

    def create(self, document: Object) -> Object:
        """Creates an object and returns it. Its status is written by a second request."""
        created = self.request("POST", _collection(document), document)
        if "status" not in document or document["kind"] == "Namespace":
            return created
        return self.put_status(created | {"status": document["status"]})

    def put_status(self, document: Object) -> Object:
        return self.request("PUT", f"{self.path(document)}/status", document)

    def put(self, document: Object) -> Object:
        return self.request("PUT", self.path(document), document)

    def get(self, document: Object) -> Object:
        return self.request("GET", self.path(document))

    def list(self, kind: str) -> list[Object]:
        """Returns the objects of all namespaces, each with its kind."""
        group, plural, _ = _GROUPS[kind]
        answer = self.request("GET", f"{group}/{plural}")
        version = answer["apiVersion"]
        return [{"apiVersion": version, "kind": kind} | item for item in answer["items"]]

    def delete(self, document: Object) -> None:
        """Deletes an object at once, even if it has finalizers."""
        try:
            stored = self.get(document)
            if stored["metadata"].get("finalizers"):
                self.put(stored | {"metadata": stored["metadata"] | {"finalizers": []}})
            self.request("DELETE", self.path(document) + "?gracePeriodSeconds=0")
        except Refused as refused:
            if refused.status != 404:
                raise

    def path(self, document: Object) -> str:
        return f"{_collection(document)}/{document['metadata']['name']}"


def _collection(document: Object) -> str:
    group, plural, namespaced = _GROUPS[document["kind"]]
    if not namespaced:
        return f"{group}/{plural}"
    namespace = document["metadata"].get("namespace", "default")
    return f"{group}/namespaces/{namespace}/{plural}"
