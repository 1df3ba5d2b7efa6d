"""What this driver asks of the API server, as typed operations, in the newest version that the
server serves.

The version is found out before the first request and again when a path is not there any more or the
watch of the slices begins anew: the API server may be upgraded while we run. Everything goes out
and comes in in the shape of v1.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from ..api import versions
from ..api.meta import PartialObject
from ..api.resource import GROUP, AllocatedDeviceStatus, ResourceClaim, ResourceSlice
from . import client, errors, watch

log = logging.getLogger(__name__)

COUNTERS_SINCE = 35  # before, they had to be in the slice of the devices
APPLY = "application/apply-patch+yaml"  # JSON is YAML
JSON_PATCH = "application/json-patch+json"

_T = TypeVar("_T")
Body = Callable[[str], dict[str, Any] | list[dict[str, Any]]]  # of a version


class _Version(msgspec.Struct, frozen=True):
    version: str = ""


class _Server(msgspec.Struct, frozen=True):
    major: str = ""
    minor: str = ""  # "34", or "34+" of some vendors


class _NodeStatus(msgspec.Struct, frozen=True):
    capacity: dict[str, str] = {}


class _Node(msgspec.Struct, frozen=True):
    status: _NodeStatus = _NodeStatus()


class _List(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    items: list[dict[str, Any]] = []


class _Group(msgspec.Struct, frozen=True):
    versions: list[_Version] = []


class Resources:
    """Claims and slices of one driver on one node. `slices` is the live copy of what the API server
    has of ours; it is kept as long as somebody runs `slices.run()`, its specs have the shape of v1.
    """

    def __init__(self, client_: client.Client, driver: str, node: str) -> None:
        self._client = client_
        self._selector = f"spec.driver={driver},spec.nodeName={node}"
        self._version = ""
        self._asking = asyncio.Lock()
        self.slices = watch.Informer(client_, self._find_slices)

    @property
    def version(self) -> str:
        """The version in use; until the API server has been asked, the one that we would like best."""
        return self._version or versions.PREFERRED[0]

    async def claim(self, namespace: str, name: str, timeout: float = 10.0) -> ResourceClaim:
        path = f"namespaces/{quote(namespace, safe='')}/resourceclaims/{quote(name, safe='')}"
        answer = await self._ask("GET", path, name, timeout=timeout)
        return _decode(answer, ResourceClaim, f"claim {namespace}/{name}")

    async def apply_devices(
        self,
        namespace: str,
        name: str,
        uid: str,
        devices: list[AllocatedDeviceStatus],
        manager: str,
    ) -> ResourceClaim:
        """Makes these all that `manager` says in the claim's status.devices; others' entries stay.
        A claim that was created anew since answers Invalid, one that is gone NotFound. Returns the
        claim as it is then.
        """

        def body(version: str) -> dict[str, Any]:
            return {
                "apiVersion": f"{GROUP}/{version}",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "status": {"devices": devices},
            }

        query = {"fieldManager": manager, "force": "true"}
        answer = await self._ask("PATCH", _status_of(namespace, name), name, body, query=query)
        return _decode(answer, ResourceClaim, f"claim {namespace}/{name}")

    async def remove_devices(self, claim: ResourceClaim, driver: str) -> None:
        """Takes the driver's entries out of status.devices, whoever owns them. Invalid if the claim
        is another now.
        """
        operations: list[dict[str, Any]] = [
            {
                "op": "test",
                "path": "/metadata/resourceVersion",
                "value": claim.metadata.resource_version,
            }
        ]
        for index in reversed(
            range(len(claim.status.devices))
        ):  # from the end: earlier ones keep their places
            if claim.status.devices[index].driver == driver:
                operations.append({"op": "remove", "path": f"/status/devices/{index}"})
        path = _status_of(claim.metadata.namespace, claim.metadata.name)
        await self._ask("PATCH", path, claim.metadata.name, lambda _: operations)

    async def node_uid(self, name: str) -> str:
        answer = await self._client.request("GET", f"/api/v1/nodes/{quote(name, safe='')}")
        return _decode(answer, PartialObject, f"node {name}").metadata.uid

    async def node_capacity(self, name: str) -> dict[str, str]:
        """What the Node offers, by the resource's name, as quantities."""
        answer = await self._client.request("GET", f"/api/v1/nodes/{quote(name, safe='')}")
        return _decode(answer, _Node, f"node {name}").status.capacity

    async def all_slices(self, node: str) -> list[dict[str, Any]]:
        """Of every driver on the node."""
        query = {"fieldSelector": f"spec.nodeName={node}"}
        async with self.slices.listing:
            answer = await self._ask("GET", "resourceslices", "", query=query)
        found = _decode(answer, _List, "the slices of the node")
        return [_in_our_shape({"apiVersion": found.api_version, **item}) for item in found.items]

    async def create_slice(self, slice_: ResourceSlice, dry_run: bool = False) -> dict[str, Any]:
        """The object as stored, or as it would be. It may have been created although this fails:
        AlreadyExists or the copy will tell.
        """
        query = {"dryRun": "All"} if dry_run else {}
        return await self._write("POST", "resourceslices", slice_, query)

    async def update_slice(self, slice_: ResourceSlice, dry_run: bool = False) -> dict[str, Any]:
        """The object as stored, or as it would be. Conflict if it is not the one that the metadata
        tells of.
        """
        query = {"dryRun": "All"} if dry_run else {}
        return await self._write(
            "PUT", f"resourceslices/{quote(slice_.metadata.name, safe='')}", slice_, query
        )

    async def keeps_counters(self, probe: ResourceSlice) -> str:
        """Why the API server would not keep the counters of this slice, which is not written; empty
        if it would.
        """
        answer = await self._client.request("GET", "/version")
        server = _decode(answer, _Server, "the API server's version")
        found = re.match(r"[0-9]{1,6}", server.minor)
        if (server.major, int(found[0]) if found else 0) < ("1", COUNTERS_SINCE):
            return f"the API server is {server.major}.{server.minor}, partitions need 1.{COUNTERS_SINCE}"
        stored = await self._write("POST", "resourceslices", probe, {"dryRun": "All"})
        if not stored["spec"].get("sharedCounters"):
            return "the API server drops sharedCounters: its feature gate DRAPartitionableDevices is off"
        return ""

    async def delete_slice(self, name: str, uid: str, resource_version: str) -> None:
        """Deletes this very state of the object; Conflict if it is another one. One that is gone is
        fine.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, "resourceVersion": resource_version},
        }
        try:
            await self._ask(
                "DELETE", f"resourceslices/{quote(name, safe='')}", name, lambda _: options
            )
        except errors.NotFound:
            log.debug("slice %s is gone already", name)

    async def create_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        path = f"/apis/events.k8s.io/v1/namespaces/{quote(namespace, safe='')}/events"
        await self._client.request("POST", path, body=msgspec.json.encode(event))

    async def _write(
        self, method: str, path: str, slice_: ResourceSlice, query: dict[str, str] | None = None
    ) -> dict[str, Any]:
        name = slice_.metadata.name
        answer = await self._ask(
            method, path, name, lambda version: versions.slice_to_wire(slice_, version), query=query
        )
        return _in_our_shape(_decode(answer, dict[str, Any], f"slice {name}"))

    async def _ask(
        self,
        method: str,
        path: str,
        name: str,
        body: Body | None = None,
        *,
        query: dict[str, str] | None = None,
        timeout: float = 10.0,
    ) -> bytes:
        """One request to the group, once more if the server turns out not to serve the version any
        more. `name` is the object's: a NotFound that does not name it is about the path.
        """
        version = self._version or await self._negotiate("", timeout)
        for _ in range(2):
            content = body(version) if body else None
            kind = (
                JSON_PATCH
                if isinstance(content, list)
                else APPLY
                if method == "PATCH"
                else "application/json"
            )
            try:
                return await self._client.request(
                    method,
                    f"/apis/{GROUP}/{version}/{path}",
                    query=query,
                    body=msgspec.json.encode(content) if content is not None else None,
                    content_type=kind,
                    timeout=timeout,
                )
            except errors.NotFound as error:
                if error.name == name:
                    raise
                seen, version = error, await self._negotiate(version, timeout)
        raise errors.NotServed(
            f"the API server says that it serves {GROUP}/{version}, but: {seen}"
        ) from seen

    async def _negotiate(self, doubted: str, timeout: float = 10.0) -> str:
        """The version to use, asked for only if nobody has found another than the doubted one
        meanwhile.
        """
        try:
            async with asyncio.timeout(timeout), self._asking:
                if not self._version or self._version == doubted:
                    self._version = await self._discover(timeout)
                return self._version
        except TimeoutError:
            raise errors.Unreachable(
                f"the API server has not said within {timeout:g} s what it serves"
            ) from None

    async def _discover(self, timeout: float) -> str:
        try:
            answer = await self._client.request("GET", f"/apis/{GROUP}", timeout=timeout)
        except errors.NotFound as error:
            raise errors.NotServed(
                f"the API server does not serve {GROUP} at all; {_ADVICE}"
            ) from error
        served = [
            item.version for item in _decode(answer, _Group, f"the API group {GROUP}").versions
        ]
        found = next((version for version in versions.PREFERRED if version in served), "")
        if not found:
            raise errors.NotServed(
                f"the API server serves {GROUP} in {', '.join(served) or 'no version'}; {_ADVICE}"
            )
        if found != self._version:
            log.info("using %s/%s", GROUP, found)
        return found

    async def _find_slices(self) -> watch.Collection:
        version = await self._negotiate(self._version)
        return _Slices(version=version, query={"fieldSelector": self._selector})


_ADVICE = (
    f"expected one of {', '.join(versions.PREFERRED)}: Kubernetes 1.34 has v1, 1.32 and 1.33 need "
    "--runtime-config and the feature gate DynamicResourceAllocation on the API server"
)


@dataclass(frozen=True, kw_only=True)
class _Slices:
    version: str
    query: dict[str, str]

    @property
    def path(self) -> str:
        return f"/apis/{GROUP}/{self.version}/resourceslices"

    def convert(self, obj: dict[str, Any]) -> dict[str, Any]:
        return _in_our_shape({"apiVersion": f"{GROUP}/{self.version}", **obj})


def _status_of(namespace: str, name: str) -> str:
    return f"namespaces/{quote(namespace, safe='')}/resourceclaims/{quote(name, safe='')}/status"


def _in_our_shape(obj: dict[str, Any]) -> dict[str, Any]:
    """A slice of any version as plain data in the shape of v1. What it says of its own version
    would be wrong then.
    """
    version = str(obj.get("apiVersion", "")).rpartition("/")[2]
    rest = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
    try:
        return rest | {"spec": versions.spec_from_wire(obj["spec"], version)}
    except (KeyError, ValueError) as error:
        raise errors.Malformed(f"not a slice that we know: {error}") from error


def _decode(answer: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.Malformed(
            f"{what}: the API server's answer is not as expected: {error}"
        ) from error
