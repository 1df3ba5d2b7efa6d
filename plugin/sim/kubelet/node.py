"""The Node object and the lease that shows that the kubelet lives. What runs on the node is nothing
to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from ... import pacing, timestamps
from ...api.document import Document
from ...kube import errors
from .api import Api
from .timing import Timing

log = logging.getLogger(__name__)

CAPACITY = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
VERSION = "v1.37.1"
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_LONGEST = 10.0  # seconds between two tries

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is special about a node."""

    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)


class Node:
    def __init__(self, api: Api, timing: Timing, shape: Shape) -> None:
        self.address = "127.0.0.1"
        self._api, self._timing, self._shape = api, timing, shape

    async def run(self) -> NoReturn:
        """Makes the Node object, deletes the slices of before, and goes on to show that it lives."""
        name = self._api.node
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }
        node = await insist(
            lambda: self._api.ensure_node(labels | dict(self._shape.labels), self._status())
        )
        await insist(self._api.wipe_slices)
        uid, lasts = node["metadata"]["uid"], int(4 * self._timing.lease)
        while True:
            await insist(lambda: self._api.renew_lease(uid, lasts))
            await asyncio.sleep(self._timing.lease)

    def _status(self) -> Document:
        now = timestamps.now()
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "the kubelet runs",
        }
        conditions = [
            *(
                {"type": each, "status": "False", "reason": f"KubeletHasNo{each}", **times}
                for each in _PRESSURES
            ),
            ready | times,
        ]
        about = {
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
        capacity = dict(CAPACITY) | dict(self._shape.capacity)
        return {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": self.address},
                {"type": "Hostname", "address": self._api.node},
            ],
            "conditions": conditions,
            "nodeInfo": about,
        }


async def insist(ask: Callable[[], Awaitable[_T]]) -> _T:
    """The answer, however long the API server is away or does not want to."""
    backoff = pacing.Backoff(0.2, _LONGEST)
    while True:
        try:
            return await ask()
        except errors.ApiError as error:
            pause = backoff.next_delay()
            log.warning("trying again in %g s: %s", pause, error)
        await asyncio.sleep(pause)
