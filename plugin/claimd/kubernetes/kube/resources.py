"""The operations of a DRA driver on the API server, with typed arguments and results.

Arguments and results have the shape of resource.k8s.io/v1. The requests use the best version of the
API that the server serves. The version is discovered before the first request. It is discovered
again when a path no longer exists and when the watch of the slices starts, because the API server
may be upgraded while we run.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import quote

import msgspec

from ..api import versions
from ..api.document import Document
from ..api.meta import PartialObject
from ..api.resource import GROUP, AllocatedDeviceStatus, ResourceClaim, ResourceSlice
from . import client, errors, nesting, watch

log = logging.getLogger(__name__)

# The first minor version of Kubernetes that accepts counters in a slice without devices.
COUNTERS_SINCE = 35

# The fields of a claim's metadata that preparing it needs.
_READ_METADATA = ("name", "namespace", "uid", "resourceVersion", "annotations")

# Claims in one answer to a list.
CLAIMS_AT_ONCE = 250

JSON = "application/json"
# Names that need no quoting in a path.
_PLAIN = re.compile(r"[A-Za-z0-9._~-]+")
# The media type of server-side apply. JSON is valid YAML.
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"

_ADVICE = (
    f"expected one of {', '.join(versions.PREFERRED)}: Kubernetes 1.34 has v1, 1.32 and 1.33 need "
    "--runtime-config and the feature gate DynamicResourceAllocation on the API server"
)

_T = TypeVar("_T")
# A function that returns the body of a request for a version of the API.
Body = Callable[[str], Document | list[Document]]


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
    items: list[Document] = []


class _Group(msgspec.Struct, frozen=True):
    versions: list[_Version] = []


class Resources:
    """Claims and slices of one driver on one node.

    `slices` is a live copy of this driver's ResourceSlices on this node. It is kept up to date
    while `slices.run()` runs. The specs in it have the shape of v1.

    Every operation is one request, or a few requests while the served version is in doubt. It
    raises an ApiError if it does not succeed within its timeout. Repeating it is the caller's task.
    """

    def __init__(self, client_: client.Client, driver: str, node: str) -> None:
        self._client = client_
        self._driver = driver
        self._node = node
        self._selector = f"spec.driver={driver},spec.nodeName={node}"
        self._version = ""
        self._negotiating = asyncio.Lock()
        self.slices = watch.Informer(client_, self._find_slices)

    @property
    def version(self) -> str:
        """The version of the API in use; the preferred one before the first request."""
        return self._version or versions.PREFERRED[0]

    # ---------------------------------------------------------------- claims

    async def claim(self, namespace: str, name: str, timeout: float = 10.0) -> ResourceClaim:
        """Returns the claim. NotFound if it does not exist."""
        path = _claim_path(namespace, name)
        answer = await self._request("GET", path, name, timeout=timeout)
        try:
            return msgspec.json.decode(answer, type=ResourceClaim)
        except RecursionError:
            # The rest of the claim must be known: whose it is, and what is allocated.
            answer = nesting.without_deep_values(answer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # The same error comes once more, with the claim's name.
            pass
        return _decode(answer, ResourceClaim, f"claim {namespace}/{name}")

    async def apply_devices(
        self,
        namespace: str,
        name: str,
        uid: str,
        devices: list[AllocatedDeviceStatus],
        manager: str,
    ) -> ResourceClaim | None:
        """Makes `devices` the only entries of `manager` in the claim's status.devices.

        Entries of other managers stay. Invalid if the claim was deleted and created again, NotFound
        if it does not exist. May be repeated. If `devices` is empty, it returns the claim after the
        change, because other managers may own entries of our devices. Otherwise it returns None.
        """

        def body(version: str) -> Document:
            return {
                "apiVersion": f"{GROUP}/{version}",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "status": {"devices": devices},
            }

        path = f"{_claim_path(namespace, name)}/status"
        query = {"fieldManager": manager, "force": "true"}
        answer = await self._request("PATCH", path, name, body, query=query)
        return None if devices else _decode(answer, ResourceClaim, f"claim {namespace}/{name}")

    async def remove_devices(self, claim: ResourceClaim, driver: str) -> None:
        """Removes the driver's entries for this node's devices from status.devices.

        It removes them no matter which manager owns them, and sends no request if there are no such entries.
        Invalid if the claim has changed since `claim` was read.
        """
        version = claim.metadata.resource_version
        operations: list[Document] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version}
        ]
        # Removing an entry moves the later ones, so the last one goes first.
        entries = list(enumerate(claim.status.devices))
        for index, entry in reversed(entries):
            if entry.driver == driver and entry.pool == self._node:
                operations.append({"op": "remove", "path": f"/status/devices/{index}"})
        if len(operations) == 1:
            return

        path = f"{_claim_path(claim.metadata.namespace, claim.metadata.name)}/status"
        await self._request("PATCH", path, claim.metadata.name, lambda _: operations)

    def allocated_claims(self) -> watch.Informer:
        """Returns an informer of the claims that have devices of this driver on this node.

        The API server cannot select them, so it sends all claims of the cluster, and the others are
        dropped. A claim's status has the shape of v1.
        """
        return watch.Informer(self._client, self._find_claims)

    # ---------------------------------------------------------------- slices

    async def all_slices(self, node: str) -> list[Document]:
        """Lists the slices of every driver on the node."""
        query = {"fieldSelector": f"spec.nodeName={node}"}
        async with self.slices.listing:
            answer = await self._request("GET", "resourceslices", "", query=query)

        listed = _decode(answer, _List, "the slices of the node")
        # The items of a list may lack their apiVersion, which the list itself has.
        return [_in_v1_shape({"apiVersion": listed.api_version, **item}) for item in listed.items]

    async def create_slice(self, slice_: ResourceSlice, dry_run: bool = False) -> Document:
        """Creates a slice and returns the stored object. A dry run returns what would be stored.

        The server may have created the slice although this method raises. Then `slices` will have
        it, and another attempt raises AlreadyExists.
        """
        return await self._write("POST", "resourceslices", slice_, dry_run)

    async def update_slice(self, slice_: ResourceSlice, dry_run: bool = False) -> Document:
        """Replaces a slice and returns the stored object. A dry run returns what would be stored.

        Conflict if the stored slice has another uid or resource version than `slice_`.
        """
        return await self._write("PUT", _slice_path(slice_.metadata.name), slice_, dry_run)

    async def delete_slice(self, name: str, uid: str, resource_version: str) -> None:
        """Deletes a slice. Conflict if it has another uid or resource version.

        Succeeds if the slice does not exist.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid, "resourceVersion": resource_version},
        }
        try:
            await self._request("DELETE", _slice_path(name), name, lambda _: options)
        except errors.NotFound:
            log.debug("slice %s is gone already", name)

    async def check_counters(self, probe: ResourceSlice) -> str:
        """Returns the reason why the API server would drop the slice's counters.

        Empty if it would keep them. The slice is not written.
        """
        answer = await self._client.request("GET", "/version")
        server = _decode(answer, _Server, "the API server's version")
        digits = re.match(r"[0-9]{1,6}", server.minor)
        minor = int(digits[0]) if digits else 0
        if (server.major, minor) < ("1", COUNTERS_SINCE):
            return (
                f"the API server is {server.major}.{server.minor}, "
                f"partitions need 1.{COUNTERS_SINCE}"
            )

        # The API server drops the fields of a feature gate that is off, without an error.
        stored = await self.create_slice(probe, dry_run=True)
        if not stored["spec"].get("sharedCounters"):
            return (
                "the API server drops sharedCounters: "
                "its feature gate DRAPartitionableDevices is off"
            )
        return ""

    async def check_sharing(self, probe: ResourceSlice) -> str:
        """Returns the reason why the API server would not keep the slice's device shareable.

        Empty if it would. The slice is not written.
        """
        stored = await self.create_slice(probe, dry_run=True)
        for device in stored["spec"].get("devices") or []:
            capacities = device.get("capacity") or {}
            policies = [capacity.get("requestPolicy") for capacity in capacities.values()]
            if device.get("allowMultipleAllocations") and all(policies):
                return ""
        return (
            "the API server drops allowMultipleAllocations or requestPolicy: "
            "it is older than 1.34, or its feature gate DRAConsumableCapacity is off"
        )

    async def check_binding(self, probe: ResourceSlice) -> str:
        """Returns the reason why binding conditions of the slice's devices would not work.

        Empty if they would. The slice is not written. Raises Forbidden if we may not list claims.
        """
        # The right comes first: without it, this costs the API server the least.
        await self._request("GET", "resourceclaims", "", query={"limit": "1"})
        stored = await self.create_slice(probe, dry_run=True)
        for device in stored["spec"].get("devices") or ():
            if device.get("bindingConditions") and device.get("bindingFailureConditions"):
                return ""
        return (
            "the API server drops bindingConditions: it is older than 1.36, or its feature gate "
            "DRADeviceBindingConditions is off"
        )

    async def _write(
        self, method: str, path: str, slice_: ResourceSlice, dry_run: bool
    ) -> Document:
        def body(version: str) -> Document:
            return versions.slice_to_wire(slice_, version)

        name = slice_.metadata.name
        query = {"dryRun": "All"} if dry_run else {}
        answer = await self._request(method, path, name, body, query=query)
        return _in_v1_shape(_decode(answer, Document, f"slice {name}"), is_stored=not dry_run)

    async def _find_slices(self) -> watch.Collection:
        version = await self._negotiate(self._version)
        return _Slices(version=version, query={"fieldSelector": self._selector})

    async def _find_claims(self) -> watch.Collection:
        version = await self._negotiate(self._version)
        return _Claims(version=version, driver=self._driver, node=self._node)

    # ---------------------------------------------------------------- nodes and events

    async def node_uid(self, name: str) -> str:
        """Returns the uid of a Node."""
        answer = await self._client.request("GET", f"/api/v1/nodes/{_quote_segment(name)}")
        return _decode(answer, PartialObject, f"node {name}").metadata.uid

    async def node_capacity(self, name: str) -> dict[str, str]:
        """Returns the capacity of a Node: the quantity of each resource, by the resource's name."""
        answer = await self._client.request("GET", f"/api/v1/nodes/{_quote_segment(name)}")
        return _decode(answer, _Node, f"node {name}").status.capacity

    async def create_event(self, namespace: str, event: Mapping[str, object]) -> None:
        """Creates an Event of events.k8s.io/v1."""
        path = f"/apis/events.k8s.io/v1/namespaces/{_quote_segment(namespace)}/events"
        await self._client.request("POST", path, body=msgspec.json.encode(event))

    # ---------------------------------------------------------------- the version in use

    async def _request(
        self,
        method: str,
        path: str,
        name: str,
        body: Body | None = None,
        *,
        query: dict[str, str] | None = None,
        timeout: float = 10.0,
    ) -> bytes:
        """Sends a request to the API group, once more if its version is no longer served.

        `name` is the object's name. A NotFound that does not name the object is about the path, and
        means that the version may be gone.
        """
        version = self._version or await self._negotiate("", timeout)
        for _ in range(2):
            content = body(version) if body else None
            try:
                return await self._client.request(
                    method,
                    f"/apis/{GROUP}/{version}/{path}",
                    query=query,
                    body=msgspec.json.encode(content) if content is not None else None,
                    content_type=_content_type(method, content),
                    timeout=timeout,
                )
            except errors.NotFound as error:
                if error.name == name:
                    raise
                refusal = error
                version = await self._negotiate(version, timeout)

        raise errors.NotServed(
            f"the API server says that it serves {GROUP}/{version}, but: {refusal}"
        ) from refusal

    async def _negotiate(self, doubted: str, timeout: float = 10.0) -> str:
        """Returns the version to use, after a request with the version `doubted` has failed.

        Many requests may fail together. The first one asks the API server, and the others use the
        version that it found.
        """
        try:
            async with asyncio.timeout(timeout), self._negotiating:
                if not self._version or self._version == doubted:
                    self._version = await self._discover(timeout)
                return self._version
        except TimeoutError:
            raise errors.Unreachable(
                f"the API server has not said within {timeout:g} s what it serves"
            ) from None

    async def _discover(self, timeout: float) -> str:
        """Asks the API server for its versions and returns the preferred one.

        NotServed if we speak none of them.
        """
        try:
            answer = await self._client.request("GET", f"/apis/{GROUP}", timeout=timeout)
        except errors.NotFound as error:
            raise errors.NotServed(
                f"the API server does not serve {GROUP} at all; {_ADVICE}"
            ) from error

        group = _decode(answer, _Group, f"the API group {GROUP}")
        served = [item.version for item in group.versions]
        for version in versions.PREFERRED:
            if version in served:
                if version != self._version:
                    log.info("using %s/%s", GROUP, version)
                return version
        raise errors.NotServed(
            f"the API server serves {GROUP} in {', '.join(served) or 'no version'}; {_ADVICE}"
        )


class _Slices(msgspec.Struct, frozen=True, kw_only=True):
    """The collection of our slices, in a version that the API server serves."""

    version: str
    query: dict[str, str]

    @property
    def path(self) -> str:
        return f"/apis/{GROUP}/{self.version}/resourceslices"

    def convert(self, obj: Document) -> Document:
        return _in_v1_shape({"apiVersion": f"{GROUP}/{self.version}", **obj})


class _Claims(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of the cluster; an informer keeps those with devices of a driver on a node."""

    version: str
    driver: str
    node: str

    @property
    def path(self) -> str:
        return f"/apis/{GROUP}/{self.version}/resourceclaims"

    @property
    def query(self) -> dict[str, str]:
        return {"limit": str(CLAIMS_AT_ONCE)}

    def convert(self, obj: Document) -> Document | None:
        allocation = (obj.get("status") or {}).get("allocation") or {}
        for result in allocation.get("devices", {}).get("results") or ():
            if result.get("driver") == self.driver and result.get("pool") == self.node:
                return _without_strange_parts(obj)
        return None


def _without_strange_parts(claim: Document) -> Document:
    """Returns what we read of a claim, without values that could be too deep for a parser."""
    metadata, status = claim["metadata"], claim["status"]
    allocation = status["allocation"]
    configs = []
    for config in allocation["devices"].get("config") or ():
        too_deep = {"parameters": nesting.REPLACEMENT} if nesting.is_too_deep(config) else {}
        configs.append({**config, "opaque": {**config["opaque"], **too_deep}})
    devices = []
    for entry in status.get("devices") or ():
        devices.append({name: value for name, value in entry.items() if name != "data"})
    return {
        "metadata": {name: metadata[name] for name in _READ_METADATA if name in metadata},
        "status": {
            "allocation": {
                **allocation,
                "devices": {**allocation["devices"], "config": configs},
            },
            "reservedFor": status.get("reservedFor") or [],
            "devices": devices,
        },
    }


def _claim_path(namespace: str, name: str) -> str:
    return f"namespaces/{_quote_segment(namespace)}/resourceclaims/{_quote_segment(name)}"


def _slice_path(name: str) -> str:
    return f"resourceslices/{_quote_segment(name)}"


def _quote_segment(name: str) -> str:
    """Returns the name as one segment of a path, with every special character escaped."""
    # Nearly no name needs escapes, and this check is faster than quote().
    return name if _PLAIN.fullmatch(name) else quote(name, safe="")


def _content_type(method: str, content: Document | list[Document] | None) -> str:
    if isinstance(content, list):
        return JSON_PATCH
    return APPLY if method == "PATCH" else JSON


class _StoredMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str
    resource_version: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Document] | None = None
    deletion_timestamp: str | None = None


class _StoredPool(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class _StoredDevice(msgspec.Struct, frozen=True):
    name: str
    attributes: dict[str, Document] | None = None
    capacity: dict[str, Document] | None = None


class _StoredSpec(msgspec.Struct, frozen=True, rename="camel"):
    driver: str = ""
    node_name: str = ""
    pool: _StoredPool = _StoredPool()
    devices: list[_StoredDevice] = []


class _StoredSlice(msgspec.Struct, frozen=True):
    """The fields of a slice that later code relies on. An API server that lies may break any."""

    metadata: _StoredMetadata
    spec: _StoredSpec


_MISSHAPEN = (
    *(msgspec.ValidationError, RecursionError),
    *(KeyError, ValueError, TypeError, AttributeError),
)


def _in_v1_shape(obj: Document, *, is_stored: bool = True) -> Document:
    """Converts a slice of any version to plain data in the shape of v1.

    The result has no apiVersion and kind, because they would not fit to its shape. Raises Malformed
    if a field has another type than in every API server. The result of a dry run is not stored, and
    may lack what the storage adds.
    """
    version = str(obj.get("apiVersion", "")).rpartition("/")[2]
    converted = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
    try:
        converted["spec"] = versions.spec_from_wire(obj["spec"], version)
        added = {} if is_stored else {"uid": "", "resourceVersion": ""}
        checked = converted | {"metadata": added | converted["metadata"]}
        msgspec.convert(checked, type=_StoredSlice)
    except _MISSHAPEN as error:
        raise errors.Malformed(f"not a slice that we know: {error}") from error
    return converted


def _decode(answer: bytes, kind: type[_T], subject: str) -> _T:
    """Decodes a response. Malformed, with `subject` in its message, if it has another shape."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # Opaque parameters may legally be nested thousands of levels deep: RecursionError.
        raise errors.Malformed(
            f"{subject}: the API server's answer is not as expected: {error}"
        ) from error
