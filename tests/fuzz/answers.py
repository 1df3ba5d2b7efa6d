"""The API server's answers and what it watches for us: whoever answers in its place may send anything."""

from __future__ import annotations

import contextlib
import json
from functools import cache
from typing import Any

from claimd.common import errors, plain_text
from claimd.kubernetes.api.resource import ResourceClaim
from claimd.kubernetes.kube import client, http1, resources, watch
from claimd.kubernetes.kube import errors as kube_errors
from claimd.kubernetes.kube.client_config import Credential
from claimd.node.prepare import cdi, checkpoint, gpu_config, plan
from claimd.node.prepared import PreparedClaim
from claimd.sim.runtime import cdi_spec
from claimd_devices.gpu import DIVIDED, MOUNTED, Inventory, Libraries, Mount
from tests.support import worlds

from . import target

_LIBRARIES = Libraries(
    how=MOUNTED,
    reason="found",
    mounts=(Mount(source="/usr/lib/libcuda.so.1", target="/usr/lib/claimd/libcuda.so.1"),),
)
_INVENTORY = Inventory.from_unsorted(
    [
        worlds.gpu(0),
        worlds.gpu(1, vendor="nvidia"),
        worlds.gpu(2, vendor="nvidia", libraries=_LIBRARIES, nodes=(), is_bound_on_demand=True),
        worlds.gpu(3, vendor="nvidia", libraries=_LIBRARIES),
        worlds.gpu(4, kind=DIVIDED),
    ]
)


def _claim(data: bytes) -> None:
    try:
        claim = resources._decode(data, ResourceClaim, "a claim")
    except kube_errors.Malformed:
        return
    # The kubelet's uid was checked at the door, and a claim of another one is refused.
    if claim.metadata.uid not in ("uid-c", "uid-d", "uid-e"):
        return
    arguments: dict[str, Any] = {"driver": worlds.DRIVER, "pool": worlds.NODE}
    arguments["neighbours"] = _neighbours()
    try:
        prepared = plan.plan(claim, inventory=_INVENTORY, now="2026-01-01T00:00:00Z", **arguments)
        spec = cdi.build(prepared, _INVENTORY)
    except errors.ClaimError as error:
        assert plain_text.one_line(str(error)) == str(error), "people read control characters"
        return

    # What is promised to be prepared can be kept, and read by a container runtime.
    kept = checkpoint.Checkpoint(version=1, boot_id="b", claim=prepared)
    assert checkpoint.decode(checkpoint.encode(kept)) == kept
    if prepared.devices:  # else no spec is written
        cdi_spec.parse(spec.decode())


@cache
def _neighbours() -> list[PreparedClaim]:
    """A share of a device is somebody else's."""
    share: dict[str, Any] = {"shareID": "s0", "consumedCapacity": {"memory": "1Gi"}}
    claim = worlds.claim("n", worlds.result(_INVENTORY.gpus[1].name, **share))
    return [
        plan.plan(
            claim,
            driver=worlds.DRIVER,
            pool=worlds.NODE,
            inventory=_INVENTORY,
            neighbours=(),
            now="2026-01-01T00:00:00Z",
        )
    ]


def _claims() -> list[bytes]:
    first = _INVENTORY.gpus[0].name
    second = _INVENTORY.gpus[1].name
    others = _INVENTORY.gpus[2:]
    configured = worlds.opaque(worlds.gpu_config(environment={"A": "b"}, permissions="rw"))
    of_mps = worlds.opaque(worlds.gpu_config(mps="/run/nvidia-mps"), "FromClass")
    share: dict[str, Any] = {"shareID": "s1", "consumedCapacity": {"memory": "20Gi"}}
    objects = [
        worlds.claim_object("c", worlds.result(first), config=[configured]),
        worlds.claim_object("d", worlds.result(first, "a"), worlds.result(first, "b/c")),
        worlds.claim_object("e"),
        worlds.claim_object("c", worlds.result(second, **share), config=[of_mps]),
        worlds.claim_object("c", *(worlds.result(gpu.name, adminAccess=True) for gpu in others)),
        worlds.claim_object("d", *(worlds.result(gpu.name) for gpu in others[1:2])),
        worlds.claim_object("e", worlds.result(others[0].name)),
    ]
    return [json.dumps(obj).encode() for obj in objects]


def _slices(data: bytes) -> None:
    async def find() -> watch.Collection:
        raise AssertionError

    # An informer decides on events as they come; nobody is asked.
    informer = watch.Informer(None, find)  # type: ignore[arg-type]
    version, _, line = data.partition(b"\n")
    collection = resources._Slices(version=version.decode(errors="replace"), query={})
    with contextlib.suppress(kube_errors.ApiError):
        informer._apply(collection, line)


def _events() -> list[bytes]:
    spec: dict[str, Any] = {
        "driver": worlds.DRIVER,
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"a": {"string": "b"}}}],
    }
    old = spec | {"devices": [{"name": "gpu-0", "basic": {"attributes": {"a": {"int": 1}}}}]}
    metadata = {"name": "s", "resourceVersion": "7"}
    status = {"kind": "Status", "code": 410, "message": "gone", "details": {"retryAfterSeconds": 1}}
    rows = [
        ("v1", {"type": "ADDED", "object": {"metadata": metadata, "spec": spec}}),
        ("v1beta1", {"type": "MODIFIED", "object": {"metadata": metadata, "spec": old}}),
        ("v1", {"type": "DELETED", "object": {"metadata": metadata, "spec": spec}}),
        ("v1", {"type": "BOOKMARK", "object": {"metadata": metadata}}),
        ("v1", {"type": "ERROR", "object": status}),
    ]
    return [f"{version}\n{json.dumps(event)}".encode() for version, event in rows]


class _Said:
    """A stream whose other side has said all that it will say."""

    def __init__(self, data: bytes) -> None:
        self._pieces = [data]

    async def read(self) -> bytes:
        return self._pieces.pop() if self._pieces else b""


def _response(data: bytes) -> None:
    """Reads a response from a connection that has said all that it will say."""
    connection = client._Connection(_Said(data), Credential(), 1 << 20)  # type: ignore[arg-type]
    connection.http.expect()
    try:
        response = target.finished(connection.response())
        body = target.finished(connection.body())
    except (http1.ProtocolError, kube_errors.Malformed, client._Unanswered):
        return
    error = kube_errors.from_answer("GET /", response.status, client._headers(response), body)
    assert 0 <= (error.retry_after or 0.0) <= kube_errors.LONGEST_RETRY_AFTER


def _responses() -> list[bytes]:
    body = (
        b'{"kind":"Status","message":"m","reason":"Conflict","details":{"causes":[{"field":"f"}]}}'
    )
    head = f"HTTP/1.1 409 Conflict\r\nContent-Length: {len(body)}\r\nRetry-After: 7\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{}\r\n\r\n0\r\n\r\n"
    return [head.encode() + body, chunked, b"HTTP/1.1 103 Early Hints\r\n\r\n" + chunked]


TARGETS = {
    "claims": target.Target(
        read=_claim,
        parts=(
            *(resources._decode, gpu_config, plan.plan, plan._our_results, plan._pod_claim_name),
            *(
                plan._plan_device,
                plan._consumed_capacity,
                plan._parse_amount,
                plan._refuse_several_clients,
            ),
            *(plan._refuse_overlap, plan._refuse_too_much, plan._reason_divided, plan._whole_gpu),
            *(cdi.build, cdi._describe_device, cdi._environment, cdi._share_variables),
            *(cdi._mps_variables, cdi._mps_mounts, cdi._library_mounts),
        ),
        examples=_claims,
        words=(
            b'"opaque"',
            b'"parameters"',
            b'"requests"',
            b'"environment"',
            b"LD_PRELOAD",
            b'"shareID"',
        ),
    ),
    "slices": target.Target(
        read=_slices,
        parts=(resources._Slices, watch.Informer._apply, kube_errors),
        examples=_events,
        words=(b'"spec"', b'"basic"', b"v1alpha3\n"),
    ),
    "responses": target.Target(
        read=_response,
        parts=(
            http1.Responses,
            client._Connection.response,
            client._Connection.body,
            client._Connection.event,
            client._headers,
            kube_errors,
        ),
        examples=_responses,
        words=(b"Content-Length: ", b"Retry-After: ", b"chunked"),
    ),
}
