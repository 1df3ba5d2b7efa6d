"""The type of a situation, which is a pod that waits for one reason, or does not wait.

The module `situations` lists all situations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.cluster.pending.documents import Object, job
from tests.support.cluster_objects import class_, node

# A placeholder for the pod's UID in claims that are created after the pod.
OWN_UID = "OWN-UID"


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The objects of a situation, and the pod that is created after them.

    `name` is the name of its recording. The `deleted` objects are deleted before the pod comes, and
    a finalizer keeps them. The objects `after` are created after the pod. If `waits` is true, the
    scheduler says nothing, since it waits for somebody else. Otherwise it has these `seconds`. The
    namespace has the `labels` while objects are created.
    """

    name: str
    title: str
    objects: tuple[Object, ...]
    pod: Object
    after: tuple[Object, ...] = ()
    deleted: tuple[str, ...] = ()
    waits: bool = False
    labels: tuple[str, ...] = ()
    seconds: float = 5.0


def situation(title: str, *objects: Object, pod: Object | None = None, **more: Any) -> Situation:
    """Makes a situation. Adds the driver's class and one node if the objects have none."""
    listed = list(objects)
    if not any(item["kind"] == "DeviceClass" for item in listed):
        listed.insert(0, class_())
    if not any(item["kind"] == "Node" for item in listed) and not more.pop("without_node", False):
        listed.insert(0, node("node-1"))
    called = "".join(each if each.isalnum() else "-" for each in title.lower()).strip("-")
    called = "-".join(filter(None, called.split("-")))
    return Situation(
        name=called,
        title=title,
        objects=tuple(listed),
        pod=job(gpu="train") if pod is None else pod,
        **more,
    )
