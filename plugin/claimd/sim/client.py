"""Requests to the API server, in the newest version of the resource API that it serves.

Scheduler, controllers and kubelets share this client. Objects are plain data, and the callers
decide what to do with them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import client, errors

from .requests import Request

log = logging.getLogger(__name__)

RESOURCE_GROUP = "resource.k8s.io"
# The newest version that has the resource is used. All listed versions have compatible shapes.
RESOURCE_VERSIONS = ("v1", "v1beta2", "v1alpha3")
# Groups and versions that a server may lack.
_OPTIONAL = ("/apis/policy/v1", "/apis/scheduling.k8s.io/v1beta1")
BASE_PATHS = {
    "configmaps": "/api/v1",
    "namespaces": "/api/v1",
    "nodes": "/api/v1",
    "pods": "/api/v1",
    "secrets": "/api/v1",
    "serviceaccounts": "/api/v1",
    "services": "/api/v1",
    "daemonsets": "/apis/apps/v1",
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "jobs": "/apis/batch/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "events": "/apis/events.k8s.io/v1",
    "priorityclasses": "/apis/scheduling.k8s.io/v1",
}

RETRY_PERIOD = 5.0  # seconds until a failed request is retried
MAX_IN_FLIGHT = 8  # requests of one client at a time


class ApiClient:
    """Sends requests and decodes the answers. Errors are those of `kube.errors`.

    Requests are not retried, except by `serves` and `minor_release`: the caller decides about
    failures.
    """

    def __init__(self, client_: client.Client) -> None:
        self.http = client_
        self._resource_paths: dict[str, str] = {}  # discovered, by resource
        self._discovering = asyncio.Lock()
        # A request's timeout starts when it is sent, so that a burst does not time out.
        self._in_flight = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def base_path(self, resource: str) -> str:
        """Returns the path of the resource's group and version. Raises NotServed if no version is
        served.
        """
        if resource in BASE_PATHS:
            return BASE_PATHS[resource]

        async with self._discovering:
            if not self._resource_paths:
                self._resource_paths = await self._discover()
        if resource not in self._resource_paths:
            versions = ", ".join(RESOURCE_VERSIONS)
            raise errors.NotServed(
                f"the API server has no {resource} of {RESOURCE_GROUP} in {versions}"
            )
        return self._resource_paths[resource]

    async def serves(self, resource: str) -> bool:
        """Returns True if the resource is served. Waits until the API server answers."""
        while True:
            try:
                await self.base_path(resource)
            except errors.NotServed:
                return False
            except errors.ApiError as error:
                log.warning("not known yet whether there are %s: %s", resource, error)
                await asyncio.sleep(RETRY_PERIOD)
            else:
                return True

    async def minor_release(self) -> int:
        """Returns the minor release of the API server. Waits until it answers."""
        while True:
            try:
                version = await self.get("/version")
            except errors.ApiError as error:
                log.warning("not known yet which release this is: %s", error)
                await asyncio.sleep(RETRY_PERIOD)
            else:
                # A release that is not out yet has a plus.
                return int(version["minor"].rstrip("+"))

    async def send(self, request: Request, timeout: float = 10.0) -> Document:
        """Returns the object or list that the API server answers with.

        A request for an object that was replaced meanwhile raises Conflict, even where the API
        server reports that a patch must not change the uid.
        """
        path = await self.base_path(request.resource)
        if request.namespace:
            path += f"/namespaces/{quote(request.namespace, safe='')}"
        path += f"/{request.resource}"
        for part in (request.name, request.subresource):
            if part:
                path += f"/{quote(part, safe='')}"

        body = None
        if request.body is not None:
            body = msgspec.json.encode(request.body)
        async with self._in_flight:
            try:
                answer = await self.http.request(
                    request.method,
                    path,
                    query=request.query,
                    body=body,
                    content_type=request.content_type,
                    timeout=timeout,
                )
            except errors.Invalid as error:
                if any(cause.field == "metadata.uid" for cause in error.causes):
                    raise errors.Conflict(error.message, status=error.status) from error
                raise

        try:
            return msgspec.json.decode(answer, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise errors.Malformed(f"{request.method} {path}: not an object: {error}") from error

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Document:
        """Returns the document at a path: discovery, or a list of a resource known only by path."""
        answer = await self.http.request("GET", path, query=query)
        document: Document = msgspec.json.decode(answer)
        return document

    async def find(self, resource: str, namespace: str, name: str) -> Document | None:
        """Returns the object from the API server, not from a cache; None if it does not exist."""
        request = Request(method="GET", resource=resource, namespace=namespace, name=name)
        try:
            return await self.send(request)
        except errors.NotFound:
            return None

    async def _discover(self) -> dict[str, str]:
        paths: dict[str, str] = {}
        for path in (
            *(f"/apis/{RESOURCE_GROUP}/{version}" for version in RESOURCE_VERSIONS),
            *_OPTIONAL,
        ):
            try:
                listed = await self.get(path)
            except errors.NotFound:
                continue
            for resource in listed.get("resources") or ():
                paths.setdefault(resource["name"], path)
        return paths
