"""One situation: a pod that waits for one reason, or does not. All of them are in `situations`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.cluster.pending.documents import Object, job
from tests.support.cluster_objects import class_, node

OWN_UID = "OWN-UID"  # stands for the subject's uid in claims that are made after it


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is created, and the pod that comes then; `name` is that of its recording.

    What is `deleted` is deleted before the pod comes, and kept by a finalizer; what comes `after`
    is made when the pod is there. `waits`: the scheduler says nothing, since it waits for somebody
    else; it has `seconds` otherwise. `labels` are those of the namespace while objects are created.
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
    """With the class of our driver, and one node where none is given."""
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
