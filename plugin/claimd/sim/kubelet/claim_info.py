"""The claims on the node: their pods, and the devices that drivers have prepared for them.

A checkpoint stores this information across restarts of the kubelet. Claims are prepared before the
pod's sandbox is created, and unprepared when no pod of the node uses them any more. The callers
decide when to retry.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from claimd.common import durable
from claimd.common.errors import Fatal
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.resource import ResourceClaim
from claimd.kubernetes.kube import errors

from . import calls
from .api import KubeletApi
from .plugins import Plugin, PluginRegistry
from .timing import Timing

log = logging.getLogger(__name__)

CHECKPOINT = "dra_manager_state"


class ClaimsError(Exception):
    """The pod's claims cannot be prepared or unprepared now."""


@dataclass(slots=True, kw_only=True)
class ClaimInfo:
    """A claim that a pod of the node uses, or whose unprepare has not succeeded yet."""

    claim: calls.ClaimRef
    pods: set[str] = field(default_factory=set)  # uids
    devices: dict[str, list[calls.PreparedDevice]] = field(default_factory=dict)  # by driver
    # Drivers that have prepared the claim for this kubelet. This is not in the checkpoint: a new
    # kubelet asks each driver again.
    prepared: set[str] = field(default_factory=set)
    unpreparing: bool = False  # an unprepare has begun


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """A prepared device as a container uses it."""

    title: str  # as in the pod's status: claim:NAME or claim:NAME/REQUEST
    claim: calls.ClaimRef
    driver: str
    prepared: calls.PreparedDevice


class PodClaim(NamedTuple):
    """A claim as a pod refers to it."""

    title: str  # the name in the pod's spec
    name: str | None  # of the object; None if the template needs no claim
    in_spec: bool  # False for extended resources, which only the status lists


class ClaimInfoCache:
    """The claims on the node, with their checkpoint."""

    def __init__(
        self, folder: Path, api: KubeletApi, plugins: PluginRegistry, timing: Timing
    ) -> None:
        self.infos: dict[str, ClaimInfo] = {}  # by the claim's uid
        self._folder = durable.Folder(folder)
        self._api, self._plugins, self._timing = api, plugins, timing

    def load(self) -> None:
        """Loads the checkpoint of an earlier kubelet. Raises Fatal if it is damaged."""
        self._folder.make()
        path = self._folder.path / CHECKPOINT
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return

        try:
            checkpoint = msgspec.json.decode(content, type=_Checkpoint)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Fatal(
                f"the kubelet's checkpoint {path} is damaged: {error}; remove it"
            ) from error
        for saved in checkpoint.claims:
            claim = calls.ClaimRef(namespace=saved.namespace, name=saved.name, uid=saved.uid)
            info = ClaimInfo(claim=claim, pods=set(saved.pods), devices=saved.drivers)
            self.infos[claim.uid] = info

    async def prepare(self, pod: Document) -> None:
        """Prepares all claims of the pod. Raises ClaimsError if that is not possible now.

        May be repeated: a driver is not asked again for devices that it has prepared.
        """
        # Read and check everything before anything is changed.
        wanted: list[tuple[ClaimInfo, set[str]]] = []
        for pod_claim in claims_of(pod):
            if pod_claim.name is not None:
                claim = await self._get_claim(pod, pod_claim.name)
                wanted.append(self._check(pod, pod_claim, claim))
        for _, drivers in wanted:
            for driver in drivers:
                self._plugin(driver)

        # Write the checkpoint before a driver is called, so that a later kubelet can unprepare what
        # the driver prepares now.
        batches: dict[str, list[ClaimInfo]] = {}
        for checked, drivers in wanted:
            # Another pod may have added the same claim while this one awaited its requests.
            info = self.infos.setdefault(checked.claim.uid, checked)
            if info.unpreparing:
                raise ClaimsError(f"ResourceClaim {info.claim.name} is being unprepared")
            info.pods.add(pod["metadata"]["uid"])
            for driver in drivers:
                info.devices.setdefault(driver, [])
                if driver not in info.prepared:
                    batches.setdefault(driver, []).append(info)
        self._write_checkpoint()

        for driver, infos in batches.items():
            await self._prepare_by(driver, infos)

    async def _prepare_by(self, driver: str, infos: Sequence[ClaimInfo]) -> None:
        try:
            prepared, problem = await calls.prepare(
                self._plugin(driver), [info.claim for info in infos], self._timing.call
            )
        except calls.CallError as error:
            raise ClaimsError(str(error)) from error

        # Keep the successful answers even if others have failed.
        for info in infos:
            devices = prepared.get(info.claim.uid)
            if devices is not None:
                info.devices[driver] = devices
                info.prepared.add(driver)
        self._write_checkpoint()
        if problem:
            raise ClaimsError(problem)

    async def unprepare(self, pod_uid: str) -> None:
        """Removes the pod from its claims, and unprepares those that no other pod uses.

        Raises ClaimsError if a driver has failed; the caller then repeats this.
        """
        batches: dict[str, list[ClaimInfo]] = {}
        for info in list(self.infos.values()):
            if pod_uid not in info.pods:
                continue
            if info.pods != {pod_uid}:
                info.pods.discard(pod_uid)
                continue
            # The last pod stays in the checkpoint until the drivers have answered, so that a
            # restarted kubelet finds it and tries again.
            info.unpreparing = True
            for driver in info.devices:
                batches.setdefault(driver, []).append(info)
            if not info.devices:
                del self.infos[info.claim.uid]
        self._write_checkpoint()

        for driver, infos in batches.items():
            await self._unprepare_by(driver, infos)

    async def _unprepare_by(self, driver: str, infos: Sequence[ClaimInfo]) -> None:
        try:
            await calls.unprepare(
                self._plugin(driver), [info.claim for info in infos], self._timing.call
            )
        except calls.CallError as error:
            raise ClaimsError(str(error)) from error

        for info in infos:
            info.devices.pop(driver, None)
            if not info.devices:
                self.infos.pop(info.claim.uid, None)
        self._write_checkpoint()

    def uses_of(self, pod: Document, container: Document) -> Iterator[DeviceUse]:
        """Yields the devices of a container, in the order in which the pod lists its claims.

        The same device may come twice.
        """
        listed = (container.get("resources") or {}).get("claims") or []
        for pod_claim in claims_of(pod):
            info = self._info_of(pod, pod_claim)
            if info is None:
                continue
            if not pod_claim.in_spec:
                yield from _extended_uses(info, pod, container["name"])
            for reference in listed:
                if reference["name"] == pod_claim.title:
                    yield from _listed_uses(info, pod_claim.title, reference.get("request") or "")

    def users_of(self, devices: set[tuple[str, str, str]]) -> set[str]:
        """Returns the uids of pods that use any of these devices."""
        users: set[str] = set()
        for info in self.infos.values():
            for driver, prepared in info.devices.items():
                if any((driver, device.pool, device.device) in devices for device in prepared):
                    users |= info.pods
        return users

    async def _get_claim(self, pod: Document, name: str) -> ResourceClaim:
        try:
            return await self._api.get_claim(pod["metadata"]["namespace"], name)
        except errors.ApiError as error:
            raise ClaimsError(f"failed to fetch ResourceClaim {name}: {error}") from error

    def _check(
        self, pod: Document, pod_claim: PodClaim, claim: ResourceClaim
    ) -> tuple[ClaimInfo, set[str]]:
        """Returns the claim's info and drivers. Raises ClaimsError if the pod may not use the
        claim.
        """
        metadata = claim.metadata
        made_for_pod = not pod_claim.in_spec or _is_from_template(pod, metadata.name)
        if made_for_pod and not _is_owned_by(claim, pod):
            raise ClaimsError(
                f"ResourceClaim {metadata.name} was not created for this pod "
                "(the pod is not its owner)"
            )
        if not _is_reserved_for(claim, pod):
            raise ClaimsError(f"ResourceClaim {metadata.name} is not reserved for this pod")
        if claim.status.allocation is None:
            raise ClaimsError(f"ResourceClaim {metadata.name} is not allocated")

        for info in self.infos.values():
            same_name = (info.claim.namespace, info.claim.name) == (
                metadata.namespace,
                metadata.name,
            )
            if same_name and info.claim.uid != metadata.uid:
                raise ClaimsError(
                    f"an older ResourceClaim {metadata.name} with uid {info.claim.uid} "
                    "still exists here"
                )

        reference = calls.ClaimRef(
            namespace=metadata.namespace, name=metadata.name, uid=metadata.uid
        )
        drivers = {result.driver for result in claim.status.allocation.devices.results}
        return self.infos.get(metadata.uid) or ClaimInfo(claim=reference), drivers

    def _info_of(self, pod: Document, pod_claim: PodClaim) -> ClaimInfo | None:
        """Returns the info of a claim that was prepared for the pod."""
        metadata = pod["metadata"]
        for info in self.infos.values():
            name = (info.claim.namespace, info.claim.name)
            if name == (metadata["namespace"], pod_claim.name) and metadata["uid"] in info.pods:
                return info
        return None

    def _plugin(self, driver: str) -> Plugin:
        try:
            return self._plugins.get(driver)
        except LookupError as error:
            raise ClaimsError(str(error.args[0])) from error

    def _write_checkpoint(self) -> None:
        claims = [
            _SavedClaim(
                uid=info.claim.uid,
                namespace=info.claim.namespace,
                name=info.claim.name,
                pods=sorted(info.pods),
                drivers=info.devices,
            )
            for info in self.infos.values()
        ]
        self._folder.write(CHECKPOINT, msgspec.json.encode(_Checkpoint(claims=claims)))


def claims_of(pod: Document) -> Iterator[PodClaim]:
    """Yields the pod's claims in its order. Raises ClaimsError if one has not been created yet."""
    status: Mapping[str, Any] = pod.get("status") or {}
    created = {
        entry["name"]: entry.get("resourceClaimName")
        for entry in status.get("resourceClaimStatuses") or ()
    }
    for claim in pod["spec"].get("resourceClaims") or ():
        title = claim["name"]
        name = claim.get("resourceClaimName")
        if name:
            yield PodClaim(title, name, True)
        elif title in created:
            yield PodClaim(title, created[title], True)
        else:
            raise ClaimsError(f"the ResourceClaim for {title} has not been created yet")

    extended = status.get("extendedResourceClaimStatus")
    if extended:
        yield PodClaim("", extended["resourceClaimName"], False)


def _is_owned_by(claim: ResourceClaim, pod: Document) -> bool:
    """Returns True if the claim was created for the pod, or for its PodGroup."""
    for owner in claim.metadata.owner_references:
        is_of_group = owner.kind == "PodGroup" and owner.name == _group_of(pod)
        if owner.controller and (is_of_group or owner.uid == pod["metadata"]["uid"]):
            return True
    return False


def _is_reserved_for(claim: ResourceClaim, pod: Document) -> bool:
    """Returns True if the claim is reserved for the pod, or for its PodGroup."""
    for user in claim.status.reserved_for:
        is_group = user.resource == "podgroups" and user.name == _group_of(pod)
        if is_group or user.uid == pod["metadata"]["uid"]:
            return True
    return False


def _group_of(pod: Document) -> str:
    return (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or ""


def _is_from_template(pod: Document, name: str) -> bool:
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    created = {entry["name"] for entry in statuses}
    return any(claim.title in created and claim.name == name for claim in claims_of(pod))


def _listed_uses(info: ClaimInfo, title: str, request: str) -> Iterator[DeviceUse]:
    """Yields the devices of a claim that the container lists, or of one request of it."""
    shown = f"claim:{title}/{request}" if request else f"claim:{title}"
    for driver, prepared in info.devices.items():
        for device in prepared:
            if not request or not device.requests or request in device.requests:
                yield DeviceUse(title=shown, claim=info.claim, driver=driver, prepared=device)


def _extended_uses(info: ClaimInfo, pod: Document, container: str) -> Iterator[DeviceUse]:
    """Yields the devices of extended resources; the pod's status maps their requests to containers."""
    mappings = pod["status"]["extendedResourceClaimStatus"].get("requestMappings") or ()
    requests = {
        mapping["requestName"] for mapping in mappings if mapping["containerName"] == container
    }
    for driver, prepared in info.devices.items():
        for device in prepared:
            if requests & set(device.requests):
                yield DeviceUse(title="", claim=info.claim, driver=driver, prepared=device)


class _SavedClaim(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    namespace: str
    name: str
    pods: list[str]
    drivers: dict[str, list[calls.PreparedDevice]]


class _Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    claims: list[_SavedClaim]
