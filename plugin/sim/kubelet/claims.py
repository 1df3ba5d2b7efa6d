"""Claims on the node: which pods use them, what drivers gave, and the record of it that outlives
the kubelet.

Prepare before a sandbox, unprepare when no pod of the node uses the claim any more. When to try
again is decided by the callers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ... import durable
from ...api.document import Document
from ...api.resource import ResourceClaim
from ...errors import Fatal
from ...kube import errors
from . import calls
from .api import Api
from .plugins import Plugins
from .timing import Timing

log = logging.getLogger(__name__)

FILE = "dra_manager_state"


class ClaimsError(Exception):
    """The claims of a pod cannot be had, or cannot be given back, now."""


@dataclass(slots=True, kw_only=True)
class Entry:
    """One claim that some pod of the node uses, or whose unprepare has not succeeded yet."""

    ref: calls.Ref
    pods: set[str] = field(default_factory=set)  # uids
    drivers: dict[str, list[calls.Given]] = field(default_factory=dict)
    prepared: set[str] = field(
        default_factory=set
    )  # drivers; never recorded: after a restart it is asked again
    leaving: bool = False  # an unprepare has begun


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A claim as a container of a pod uses it."""

    title: str  # as in the pod's status: claim:NAME or claim:NAME/REQUEST
    ref: calls.Ref
    driver: str
    given: calls.Given


class Book:
    def __init__(self, folder: Path, api: Api, plugins: Plugins, timing: Timing) -> None:
        self.entries: dict[str, Entry] = {}  # by the claim's uid
        self._folder = durable.Folder(folder)
        self._api, self._plugins, self._timing = api, plugins, timing

    def load(self) -> None:
        """What an earlier kubelet has recorded."""
        self._folder.make()
        try:
            text = (self._folder.path / FILE).read_bytes()
        except FileNotFoundError:
            return
        try:
            found = msgspec.json.decode(text, type=_File).claims
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Fatal(
                f"the kubelet's record {self._folder.path / FILE} is damaged: {error}; remove it"
            ) from error
        for item in found:
            ref = calls.Ref(namespace=item.namespace, name=item.name, uid=item.uid)
            self.entries[ref.uid] = Entry(ref=ref, pods=set(item.pods), drivers=item.drivers)

    async def prepare(self, pod: Document) -> None:
        """All claims of the pod are prepared, or ClaimsError says why not."""
        uid = pod["metadata"]["uid"]
        wanted: list[tuple[Entry, set[str]]] = []
        for _, name, ours in names(pod):
            if name is not None:
                wanted.append(self._checked(pod, await self._fetch(pod, name), ours))
        for _, drivers in wanted:
            for driver in drivers:
                self._pick(driver)  # all of them, before anything is changed
        batches: dict[str, list[Entry]] = {}
        for entry, drivers in wanted:
            # Another pod may have brought the same claim while we asked for ours.
            entry = self.entries.setdefault(entry.ref.uid, entry)  # noqa: PLW2901
            if entry.leaving:
                raise ClaimsError(f"ResourceClaim {entry.ref.name} is being unprepared")
            entry.pods.add(uid)
            for driver in drivers:
                entry.drivers.setdefault(driver, [])
                if driver not in entry.prepared:
                    batches.setdefault(driver, []).append(entry)
        self._write()
        for driver, entries in batches.items():
            await self._prepare(driver, entries)

    async def _prepare(self, driver: str, entries: Sequence[Entry]) -> None:
        try:
            given, trouble = await calls.prepare(
                self._pick(driver), [e.ref for e in entries], self._timing.call
            )
        except calls.CallError as error:
            raise ClaimsError(str(error)) from error
        for entry in entries:
            if (devices := given.get(entry.ref.uid)) is not None:
                entry.drivers[driver] = devices
                entry.prepared.add(driver)
        self._write()
        if trouble:
            raise ClaimsError(trouble)

    async def unprepare(self, pod_uid: str) -> None:
        """The pod uses no claim any more. ClaimsError if a driver could not be told; then it is to
        be tried again.
        """
        batches: dict[str, list[Entry]] = {}
        for entry in list(self.entries.values()):
            if pod_uid not in entry.pods:
                continue
            if entry.pods != {pod_uid}:
                entry.pods.discard(pod_uid)
                continue
            entry.leaving = True
            for driver in entry.drivers:
                batches.setdefault(driver, []).append(entry)
            if not entry.drivers:
                del self.entries[entry.ref.uid]
        self._write()
        for driver, entries in batches.items():
            try:
                await calls.unprepare(
                    self._pick(driver), [entry.ref for entry in entries], self._timing.call
                )
            except calls.CallError as error:
                raise ClaimsError(str(error)) from error
            for entry in entries:
                entry.drivers.pop(driver, None)
                if not entry.drivers:
                    self.entries.pop(entry.ref.uid, None)
            self._write()

    def of(self, pod: Document, container: Document) -> Iterator[Use]:
        """What a container is given, in the order in which its claims are listed; the same device
        perhaps twice.
        """
        uses = (container.get("resources") or {}).get("claims") or []
        for title, name, ours in names(pod):
            entry = self._named(pod, name) if name is not None else None
            if entry is None:
                continue
            if (
                not ours
            ):  # of extended resources: nobody lists it, the pod's status says who gets what
                yield from _extended(entry, pod, container["name"])
            for use in uses:
                if use["name"] == title:
                    yield from _listed(entry, title, use.get("request") or "")

    def users_of(self, devices: set[tuple[str, str, str]]) -> set[str]:
        """Uids of the pods that were given one of these, each by driver, pool and device."""
        return {
            pod
            for entry in self.entries.values()
            for driver, given in entry.drivers.items()
            if any((driver, each.pool, each.device) in devices for each in given)
            for pod in entry.pods
        }

    async def _fetch(self, pod: Document, name: str) -> ResourceClaim:
        namespace = pod["metadata"]["namespace"]
        try:
            return await self._api.claim(namespace, name)
        except errors.ApiError as error:
            raise ClaimsError(f"failed to fetch ResourceClaim {name}: {error}") from error

    def _checked(self, pod: Document, claim: ResourceClaim, ours: bool) -> tuple[Entry, set[str]]:
        """The claim's entry, old or new, and its drivers; ClaimsError if the pod may not use it."""
        meta, uid = claim.metadata, pod["metadata"]["uid"]
        owned = any(owner.uid == uid and owner.controller for owner in meta.owner_references)
        made = {
            each["name"] for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
        }
        from_template = any(title in made and name == meta.name for title, name, _ in names(pod))
        if (from_template or not ours) and not owned:
            raise ClaimsError(
                f"ResourceClaim {meta.name} was not created for this pod (the pod is not its owner)"
            )
        if not any(user.uid == uid for user in claim.status.reserved_for):
            raise ClaimsError(f"ResourceClaim {meta.name} is not reserved for this pod")
        if claim.status.allocation is None:
            raise ClaimsError(f"ResourceClaim {meta.name} is not allocated")
        for entry in self.entries.values():
            if (entry.ref.namespace, entry.ref.name) == (
                meta.namespace,
                meta.name,
            ) and entry.ref.uid != meta.uid:
                raise ClaimsError(
                    f"an older ResourceClaim {meta.name} with uid {entry.ref.uid} still exists here"
                )
        ref = calls.Ref(namespace=meta.namespace, name=meta.name, uid=meta.uid)
        drivers = {result.driver for result in claim.status.allocation.devices.results}
        return self.entries.get(meta.uid) or Entry(ref=ref), drivers

    def _named(self, pod: Document, name: str) -> Entry | None:
        """The entry of a claim of this name that the pod was given."""
        namespace, uid = pod["metadata"]["namespace"], pod["metadata"]["uid"]
        return next(
            (
                entry
                for entry in self.entries.values()
                if (entry.ref.namespace, entry.ref.name) == (namespace, name) and uid in entry.pods
            ),
            None,
        )

    def _pick(self, driver: str) -> Any:
        try:
            return self._plugins.pick(driver)
        except LookupError as error:
            raise ClaimsError(str(error.args[0])) from error

    def _write(self) -> None:
        claims = [
            _Claim(
                uid=entry.ref.uid,
                namespace=entry.ref.namespace,
                name=entry.ref.name,
                pods=sorted(entry.pods),
                drivers=entry.drivers,
            )
            for entry in self.entries.values()
        ]
        self._folder.write(FILE, msgspec.json.encode(_File(claims=claims)))


def names(pod: Document) -> Iterator[tuple[str, str | None, bool]]:
    """The pod's claims: how the pod calls it, the object's name, whether the pod's spec has it.
    None for a name: the template said that no claim is needed. ClaimsError if one has not been
    created yet.
    """
    status: Mapping[str, Any] = pod.get("status") or {}
    created = {
        each["name"]: each.get("resourceClaimName")
        for each in status.get("resourceClaimStatuses") or ()
    }
    for claim in pod["spec"].get("resourceClaims") or ():
        title = claim["name"]
        if name := claim.get("resourceClaimName"):
            yield title, name, True
        elif title not in created:
            raise ClaimsError(f"the ResourceClaim for {title} has not been created yet")
        else:
            yield title, created[title], True
    if extended := status.get("extendedResourceClaimStatus"):
        yield "", extended["resourceClaimName"], False


def _listed(entry: Entry, title: str, request: str) -> Iterator[Use]:
    shown = f"claim:{title}/{request}" if request else f"claim:{title}"
    for driver, given in entry.drivers.items():
        for each in given:
            if not request or not each.requests or request in each.requests:
                yield Use(title=shown, ref=entry.ref, driver=driver, given=each)


def _extended(entry: Entry, pod: Document, container: str) -> Iterator[Use]:
    mappings = pod["status"]["extendedResourceClaimStatus"].get("requestMappings") or ()
    requests = {each["requestName"] for each in mappings if each["containerName"] == container}
    for driver, given in entry.drivers.items():
        for each in given:
            if requests & set(each.requests):
                yield Use(title="", ref=entry.ref, driver=driver, given=each)


class _Claim(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    namespace: str
    name: str
    pods: list[str]
    drivers: dict[str, list[calls.Given]]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    claims: list[_Claim]
