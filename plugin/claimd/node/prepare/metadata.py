"""Device metadata (KEP-5304): what a program in a container reads about the devices it was given.

`build` is pure. A file a request: the attributes of its devices, as the slices publish them, with
what is this claim's alone. As with CDI specs, what is written depends on the checkpoint and the
hardware, and nothing is remembered here that matters.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from claimd.common import names
from claimd.kubernetes.api import quantity
from claimd.kubernetes.api.meta import ApiStruct, ObjectMeta
from claimd.kubernetes.api.resource import DeviceAttribute
from claimd_devices.gpu import Gpu, Inventory, Mount

from .. import dialects
from ..prepared import PreparedClaim, PreparedDevice, gpu_of
from ..publish import device as publish_device
from ..publish import sharing
from . import claim_files

# Newest first: a reader takes the first that it knows.
VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")


class Device(ApiStruct, frozen=True, kw_only=True):
    driver: str
    pool: str
    name: str
    attributes: dict[str, DeviceAttribute]


class Request(ApiStruct, frozen=True, kw_only=True):
    name: str  # "req", or "req/sub" of a prioritised list
    devices: list[Device]


class DeviceMetadata(ApiStruct, frozen=True, kw_only=True):
    """What every version has in the same form."""

    metadata: ObjectMeta
    pod_claim_name: str | None = None
    requests: list[Request]


class _Stamp(msgspec.Struct, frozen=True):
    """Of a file, what tells how often it has changed."""

    generation: Annotated[int, msgspec.Meta(ge=1, lt=2**62)]


class _Stamped(msgspec.Struct, frozen=True):
    metadata: _Stamp


class Published:
    """What the slices publish of each GPU. It is described once, and again when it has changed."""

    def __init__(
        self, *, numa_list: bool = False, sharing_rules: Sequence[sharing.Rule] = ()
    ) -> None:
        self._numa_list = numa_list
        self._sharing_rules = sharing_rules

        # By the device's name, and whether it is shared.
        self._described: dict[tuple[str, bool], tuple[Gpu, dict[str, DeviceAttribute]]] = {}

    def attributes(self, gpu: Gpu, *, is_shared: bool) -> dict[str, DeviceAttribute]:
        """`is_shared` is how a claim has it: alone, or by a share."""
        described = self._described.get((gpu.name, is_shared))
        if described is not None and described[0] == gpu:
            return described[1]

        how = sharing.of_gpu(self._sharing_rules, gpu) if is_shared else sharing.ALONE
        device = publish_device.of_gpu(
            gpu, [], numa_list=self._numa_list, counters=False, shared=how
        )
        self._described[gpu.name, is_shared] = gpu, device.attributes
        return device.attributes


def build(
    prepared: PreparedClaim, driver: str, inventory: Inventory, published: Published
) -> dict[str, DeviceMetadata]:
    """What there is to read for each request, by its name, without a generation.

    Raises ClaimError if a GPU that the claim was given is not there, or if another one stands in
    its place.
    """
    dialect = dialects.of_driver(driver)
    requests: dict[str, Request] = {}
    for device in prepared.devices:
        gpu = gpu_of(device, inventory)
        attributes = published.attributes(gpu, is_shared=device.share_id is not None)
        if dialect is not None:
            attributes = dialects.attributes(dialect, attributes, gpu, inventory)
        described = Device(
            driver=driver,
            pool=device.pool,
            name=device.device,
            attributes=_attributes(device, attributes),
        )
        for name in device.requests:
            subrequest = device.subrequests.get(name)
            full_name = f"{name}/{subrequest}" if subrequest else name
            request = requests.setdefault(name, Request(name=full_name, devices=[]))
            request.devices.append(described)

    meta = ObjectMeta(name=prepared.name, namespace=prepared.namespace, uid=prepared.uid)
    return {
        name: DeviceMetadata(
            metadata=meta, pod_claim_name=prepared.pod_claim_name, requests=[request]
        )
        for name, request in requests.items()
    }


def _attributes(
    device: PreparedDevice, published: Mapping[str, DeviceAttribute]
) -> dict[str, DeviceAttribute]:
    """As published, and how the claim has the device: a share, how much of it, for admin access."""
    attributes = dict(published)
    if device.admin:
        attributes["adminAccess"] = DeviceAttribute(bool_=True)
    if device.share_id:
        attributes["shareID"] = DeviceAttribute(string=device.share_id)
    for capacity, amount in device.consumed_capacity.items():
        whole = quantity.parse_whole(amount)
        if whole <= publish_device.INTEGER_LIMIT:
            name = f"consumed{capacity[:1].upper()}{capacity[1:]}"
            attributes[name] = DeviceAttribute(int_=whole)
    return attributes


def encode(document: DeviceMetadata, generation: int) -> bytes:
    """The text of a file: the same once for each version, one a line."""
    meta = msgspec.structs.replace(document.metadata, generation=generation)
    fields = msgspec.json.encode(msgspec.structs.replace(document, metadata=meta))[1:]
    lines = [
        b'{"apiVersion":"%s","kind":"DeviceMetadata",%s\n' % (version.encode(), fields)
        for version in VERSIONS
    ]
    return b"".join(lines)


def generation_of(text: bytes | None) -> int:
    """The generation that a file of ours has; 0 if there is no file, or a damaged one."""
    if text is None:
        return 0
    first, _, _ = text.partition(b"\n")
    try:
        return msgspec.json.decode(first, type=_Stamped).metadata.generation
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0


def stamped(document: DeviceMetadata, existing: bytes | None) -> bytes:
    """The text of the file that has this text now: the same, or one of the next generation."""
    generation = generation_of(existing)
    if generation:
        same = encode(document, generation)
        if same == existing:
            return same
    return encode(document, generation + 1)


class MetadataFolder:
    """Our files, of which a claim has one for each of its requests.

    Whoever changes one holds the lock of the checkpoints.
    """

    def __init__(self, folder: Path, driver: str, published: Published) -> None:
        self._files = claim_files.ClaimFiles(folder)
        self._driver = driver
        self._published = published

    def mounts(self, prepared: PreparedClaim) -> dict[str, Mount]:
        """By request, the file and where a container finds it."""
        return {
            request: Mount(
                source=self._files.path(names.metadata_file(prepared.uid, request)),
                target=names.metadata_target(
                    self._driver, prepared.name, prepared.pod_claim_name, request
                ),
            )
            for request in _requests(prepared)
        }

    def ensure(self, prepared: PreparedClaim, inventory: Inventory) -> bool:
        """Makes the claim's files right; says whether one had to be written.

        A file that comes to say something else has the next generation: that is how readers notice.
        May be repeated at any time. ClaimError as `build`; an OSError leaves each file as it was or
        as it was to be.
        """
        documents = build(prepared, self._driver, inventory, self._published)
        written = False
        for request, document in documents.items():
            written |= self._files.ensure(
                names.metadata_file(prepared.uid, request),
                document,
                functools.partial(stamped, document),
            )
        return written

    def remove(self, prepared: PreparedClaim) -> None:
        """Removes the claim's files; those that are gone are no error."""
        for request in _requests(prepared):
            self._files.remove(names.metadata_file(prepared.uid, request))

    def forget(self, prepared: PreparedClaim) -> None:
        """Leaves the claim's files as they are, whatever others do to them, until `ensure`."""
        for request in _requests(prepared):
            self._files.forget(names.metadata_file(prepared.uid, request))

    def keep(self, claims: Iterable[PreparedClaim]) -> None:
        """Removes all but the files of these claims. Nobody may be writing meanwhile."""
        kept = {
            names.metadata_file(prepared.uid, request)
            for prepared in claims
            for request in _requests(prepared)
        }
        for name in self._files.sweep() - kept:
            self._files.remove(name)
        self._files.keep(kept)

    def is_disturbed(self) -> bool:
        """Whether a file of ours is gone or was changed by others since `ensure`."""
        return self._files.is_disturbed()


def _requests(prepared: PreparedClaim) -> set[str]:
    return {request for device in prepared.devices for request in device.requests}
