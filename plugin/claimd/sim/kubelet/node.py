"""The Node object and its lease, which show that the kubelet is alive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from claimd.common import pacing, timestamps
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import errors

from .api import KubeletApi
from .timing import Timing

log = logging.getLogger(__name__)

CAPACITY = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
VERSION = "v1.37.1"
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_BACKOFF, _BACKOFF_LIMIT = 0.2, 10.0  # seconds between two tries

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProfile:
    """The node's additional labels and its capacity."""

    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)


class Node:
    """Keeps the Node object and its lease up to date."""

    def __init__(self, api: KubeletApi, timing: Timing, profile: NodeProfile) -> None:
        self.address = "127.0.0.1"
        self._api, self._timing, self._profile = api, timing, profile

    async def run(self) -> NoReturn:
        """Creates the Node object, deletes slices of an earlier kubelet, and renews the lease."""
        labels = {
            "kubernetes.io/hostname": self._api.node,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            **self._profile.labels,
        }
        node = await retry_until_success(lambda: self._api.ensure_node(labels, self._status()))
        await retry_until_success(self._api.wipe_slices)

        # The lease lasts four renewals, as in a real kubelet.
        uid = node["metadata"]["uid"]
        seconds = int(4 * self._timing.lease_renewal)
        while True:
            await retry_until_success(lambda: self._api.renew_lease(uid, seconds))
            await retry_until_success(lambda: self._api.correct_node(self._status()))
            await asyncio.sleep(self._timing.lease_renewal)

    def _status(self) -> Document:
        now = timestamps.now()
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        conditions = [
            {"type": pressure, "status": "False", "reason": f"KubeletHasNo{pressure}", **times}
            for pressure in _PRESSURES
        ]
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "the kubelet runs",
        }
        conditions.append(ready | times)

        node_info = {
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": "",
            "osImage": "simulated",
            "containerRuntimeVersion": "sim://1",
            "kubeletVersion": VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        }
        capacity = CAPACITY | dict(self._profile.capacity)
        return {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": self.address},
                {"type": "Hostname", "address": self._api.node},
            ],
            "conditions": conditions,
            "nodeInfo": node_info,
        }


async def retry_until_success(send: Callable[[], Awaitable[_T]]) -> _T:
    """Returns the answer of `send`, which is retried while the API server is away or refuses."""
    backoff = pacing.Backoff(_BACKOFF, _BACKOFF_LIMIT)
    while True:
        try:
            return await send()
        except errors.ApiError as error:
            delay = backoff.next_delay()
            log.warning("trying again in %g s: %s", delay, error)
        await asyncio.sleep(delay)
