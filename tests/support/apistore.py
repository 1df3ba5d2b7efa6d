"""What tests/support/apiserver.py serves: objects in memory in the v1 shape, their versions, events
and field owners.

No HTTP here, and only the rules of the API that the tests lean on.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

GROUP = "resource.k8s.io"
KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
    "resourceslices": "ResourceSlice",
    "devicetaintrules": "DeviceTaintRule",
    "deviceclasses": "DeviceClass",
    "events": "Event",
}
Object = dict[str, Any]
Key = tuple[str, str, str]  # resource, namespace, name


class Refused(Exception):
    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Object | None = None,
        text: bool = False,
    ):
        super().__init__(message)
        self.code, self.text, self.headers = code, text, dict[str, str]()
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
        }
        self.status |= {
            "message": message,
            "reason": reason,
            "details": details or {},
            "code": code,
        }

    @property
    def body(self) -> bytes:
        return f"{self}\n".encode() if self.text else json.dumps(self.status).encode()


@dataclass(eq=False)
class Watch:
    resource: str
    selector: dict[str, str]
    version: str
    bookmarks: bool
    queue: asyncio.Queue[tuple[str, Object] | None] = field(
        default_factory=asyncio.Queue
    )  # None: end of the watch


class Store:
    """Objects in the v1 shape, a counter of resource versions, a log of events."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.version = 1000
        self.oldest = 0  # a watch from before it gets 410
        self.log: list[tuple[int, str, str, Object]] = []
        self.watches: set[Watch] = set()
        self.owners: dict[tuple[Key, str], set[str]] = {}  # managers of an entry of status.devices
        self.dropped: set[str] = (
            set()
        )  # fields of a slice and its devices that this server does not know
        self.minor = "36"  # of its version

    def put(self, resource: str, obj: Object) -> Object:
        """Creates or replaces, with no questions asked."""
        meta = obj["metadata"]
        old = self.objects.get((resource, meta.get("namespace", ""), meta["name"]))
        return self.write(resource, obj, old)

    def write(self, resource: str, obj: Object, old: Object | None, dry: bool = False) -> Object:
        obj = copy.deepcopy(obj)
        meta = obj["metadata"]
        if resource == "resourceslices":
            for part in (obj["spec"], *obj["spec"].get("devices", [])):
                for name in self.dropped & part.keys():
                    del part[name]
        if old is not None:
            meta["uid"] = old["metadata"]["uid"]
            meta["resourceVersion"] = old["metadata"]["resourceVersion"]
            meta["generation"] = old["metadata"].get("generation", 1) + (
                obj.get("spec") != old.get("spec")
            )
            meta["creationTimestamp"] = old["metadata"].get("creationTimestamp")
            if obj == old:
                return copy.deepcopy(old)
        else:
            meta.setdefault("uid", str(uuid.uuid4()))
            meta.setdefault("generation", 1)
            meta.setdefault("creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        if dry:
            return obj
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        self.objects[resource, meta.get("namespace", ""), meta["name"]] = obj
        self.publish("MODIFIED" if old is not None else "ADDED", resource, obj)
        return copy.deepcopy(obj)

    def delete(self, resource: str, name: str, namespace: str = "") -> Object:
        obj = self.objects.pop((resource, namespace, name))
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.publish("DELETED", resource, obj)
        return obj

    def publish(self, kind: str, resource: str, obj: Object) -> None:
        obj = copy.deepcopy(obj)
        self.log.append((self.version, kind, resource, obj))
        for watch in self.watches:
            if watch.resource == resource and selected(obj, watch.selector):
                watch.queue.put_nowait((kind, obj))

    def bookmark(self) -> None:
        for watch in self.watches:
            if watch.bookmarks:
                watch.queue.put_nowait(
                    ("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})
                )

    def expire(self) -> None:
        """Forgets the log, as etcd's compaction does. Running watches go on; older ones cannot be
        taken up again.
        """
        self.version += 1
        self.oldest = self.version

    def end_watches(self, error: Refused | None = None) -> None:
        """A clean end, or an ERROR event before it."""
        for watch in self.watches:
            if error:
                watch.queue.put_nowait(("ERROR", error.status))
            watch.queue.put_nowait(None)

    def apply_devices(self, key: Key, applied: Object, manager: str, force: bool) -> Object:
        old = self.objects[key]
        uid = applied["metadata"].get("uid")
        if uid and uid != old["metadata"]["uid"]:
            cause = {
                "reason": "FieldValueInvalid",
                "field": "metadata.uid",
                "message": "field is immutable",
            }
            raise invalid(key, f'metadata.uid: Invalid value: "{uid}": field is immutable', cause)
        new = copy.deepcopy(old)
        status = new.setdefault("status", {})
        results = status.get("allocation", {}).get("devices", {}).get("results", [])
        entries = {entry_key(entry): entry for entry in status.get("devices", [])}
        mine = {entry_key(entry): entry for entry in applied.get("status", {}).get("devices", [])}
        for name, entry in mine.items():
            if name not in {entry_key(result) for result in results}:
                cause = {
                    "reason": "FieldValueInvalid",
                    "field": "status.devices[0]",
                    "message": "not allocated",
                }
                raise invalid(
                    key, f"status.devices: {name}: must be an allocated device in the claim", cause
                )
            others = self.owners.get((key, name), set()) - {manager}
            if others and not force and entries.get(name) != entry:
                raise Refused(
                    409, "Conflict", f"Apply failed with 1 conflict: conflict with {sorted(others)}"
                )
            entries[name] = entries[name] | entry if others and name in entries else entry
            self.owners.setdefault((key, name), set()).add(manager)
        for name in [
            name
            for name in entries
            if name not in mine and manager in self.owners.get((key, name), ())
        ]:
            self.owners[key, name].discard(manager)
            if not self.owners[key, name]:
                del entries[name]
        status["devices"] = list(entries.values())
        return self.write(key[0], new, old)

    def patch_devices(self, key: Key, operations: list[Object]) -> Object:
        """A JSON patch as a driver sends it: a test of the resourceVersion, and entries of
        status.devices removed.
        """
        old = self.objects[key]
        new = copy.deepcopy(old)
        for operation in operations:
            if operation["op"] == "test":
                if old["metadata"]["resourceVersion"] != operation["value"]:
                    raise invalid(
                        key, "the server rejected our request due to an error in our request", {}
                    )
            else:
                assert operation["op"] == "remove"
                assert operation["path"].startswith("/status/devices/")
                del new["status"]["devices"][int(operation["path"].rpartition("/")[2])]
        return self.write(key[0], new, old)


def selected(obj: Object, wanted: dict[str, str]) -> bool:
    for path, value in wanted.items():
        found: Any = obj
        for name in path.split("."):
            found = found.get(name, {}) if isinstance(found, dict) else {}
        if (found or "") != value:
            return False
    return True


def entry_key(entry: Object) -> str:
    return "/".join(entry.get(name) or "" for name in ("driver", "pool", "device", "shareID"))


def invalid(key: Key, message: str, cause: Object) -> Refused:
    details = {"name": key[2], "group": GROUP, "kind": "ResourceClaim", "causes": [cause]}
    return Refused(
        422, "Invalid", f'ResourceClaim.{GROUP} "{key[2]}" is invalid: {message}', details
    )


def check_event(obj: Object, namespace: str) -> None:
    """What API servers ask of an event of events.k8s.io/v1."""
    about = obj.get("regarding", {})
    wrong = [
        name
        for name in ("eventTime", "reportingController", "reportingInstance", "action")
        if not obj.get(name)
    ]
    limits = {"reportingInstance": 128, "action": 128, "reason": 128, "note": 1024}
    wrong += [name for name, limit in limits.items() if len(obj.get(name, "").encode()) > limit]
    wrong += [] if obj.get("type") in ("Normal", "Warning") else ["type"]
    wrong += (
        []
        if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", obj.get("eventTime", ""))
        else ["eventTime"]
    )
    wrong += (
        []
        if re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", obj["metadata"].get("name", ""))
        else ["name"]
    )
    wrong += (
        []
        if namespace == obj["metadata"].get("namespace") == about.get("namespace", "default")
        else ["namespace"]
    )
    if wrong:
        raise Refused(422, "Invalid", f"Event is invalid: {', '.join(wrong)}: {obj}")


def to_wire(resource: str, obj: Object, version: str) -> Object:
    obj = {
        "apiVersion": f"{GROUP}/{version}" if version else "v1",
        "kind": KINDS[resource],
    } | copy.deepcopy(obj)
    if version == "v1beta1" and resource == "resourceslices":
        for device in obj.get("spec", {}).get("devices", []):
            rest = {name: device.pop(name) for name in list(device) if name != "name"}
            device["basic"] = rest
    if version == "v1beta1" and resource in ("resourceclaims", "resourceclaimtemplates"):
        spec = obj.get("spec", {})
        for request in spec.get("spec", spec).get("devices", {}).get("requests", []):
            request.update(request.pop("exactly", {}))
    return obj


def from_wire(obj: Object, version: str) -> Object:
    if obj.get("apiVersion") != (f"{GROUP}/{version}" if version else "v1") or not obj.get("kind"):
        raise Refused(
            400, "BadRequest", f"the object says {obj.get('apiVersion')}, the path says {version}"
        )
    obj = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
    for device in obj.get("spec", {}).get("devices", []):
        if version == "v1beta1":
            device.update(device.pop("basic", {}))
    return obj
