"""Device metadata (KEP-5304): files in which programs in a container read about their devices.

There is one file per request. It has the attributes of the request's devices as the slices publish
them, and facts that are true only for this claim. `build` is pure. As with CDI specs, the content
of a file depends only on the checkpoint and the hardware, and this module keeps no important state.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from claimd.common import names
from claimd.kubernetes.api import limits, quantity
from claimd.kubernetes.api.meta import ApiStruct, ObjectMeta
from claimd.kubernetes.api.resource import DeviceAttribute
from claimd_devices.gpu import Gpu, Inventory, Mount

from .. import dialects
from ..prepared import PreparedClaim, PreparedDevice, gpu_of
from ..publish import device as publish_device
from ..publish import sharing
from . import claim_files

# Newest first: a reader takes the first one that it knows.
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
    """The content of a file, which is the same in every version."""

    metadata: ObjectMeta
    pod_claim_name: str | None = None
    requests: list[Request]


class _Stamp(msgspec.Struct, frozen=True):
    """The part of a file that counts how often it has changed."""

    generation: Annotated[int, msgspec.Meta(ge=1, lt=2**62)]


class _Stamped(msgspec.Struct, frozen=True):
    metadata: _Stamp


class _Described(msgspec.Struct, frozen=True):
    """The part of a file that names the claim."""

    metadata: ObjectMeta


class Published:
    """The attributes of each GPU as the slices publish them, computed once for each change."""

    def __init__(
        self, *, numa_list: bool = False, sharing_rules: Sequence[sharing.Rule] = ()
    ) -> None:
        self._numa_list = numa_list
        self._sharing_rules = sharing_rules

        # The GPU and its attributes, by the device's name and whether it is shared.
        self._described: dict[tuple[str, bool], tuple[Gpu, dict[str, DeviceAttribute]]] = {}

    def attributes(self, gpu: Gpu, *, is_shared: bool) -> dict[str, DeviceAttribute]:
        """Returns the attributes of a GPU. `is_shared` is True if the claim has a share of it."""
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
    """Returns the metadata document of each request, by the request's name.

    `encode` adds the generation to a document.

    Raises ClaimError if a GPU of the claim is not there, or if another GPU is in its place.
    """
    dialect = dialects.of_driver(driver)
    requests: dict[str, Request] = {}
    for device in prepared.devices:
        gpu = gpu_of(device, inventory)
        attributes = published.attributes(gpu, is_shared=device.share_id is not None)
        if dialect is not None:
            attributes = dialects.attributes(dialect, attributes, gpu, inventory)

        # Several requests may have the same device.
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
    documents: dict[str, DeviceMetadata] = {}
    for name, request in requests.items():
        documents[name] = DeviceMetadata(
            metadata=meta, pod_claim_name=prepared.pod_claim_name, requests=[request]
        )
    return documents


def _attributes(
    device: PreparedDevice, published: Mapping[str, DeviceAttribute]
) -> dict[str, DeviceAttribute]:
    """Returns the published attributes, with the claim's share of the device and admin access."""
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

    # Readers take no more than a slice may have.
    for name in publish_device.SPARE:
        if len(attributes) <= limits.ATTRIBUTES_AND_CAPACITIES:
            break
        attributes.pop(name, None)
    return attributes


def encode(document: DeviceMetadata, generation: int) -> bytes:
    """Returns the text of a file: one line per version, with the same content."""
    meta = msgspec.structs.replace(document.metadata, generation=generation)
    fields = msgspec.json.encode(msgspec.structs.replace(document, metadata=meta))[1:]
    lines = [
        b'{"apiVersion":"%s","kind":"DeviceMetadata",%s\n' % (version.encode(), fields)
        for version in VERSIONS
    ]
    return b"".join(lines)


def generation_of(text: bytes | None) -> int:
    """Returns the generation in the text of a file; 0 if there is no file or it is damaged."""
    if text is None:
        return 0
    first, _, _ = text.partition(b"\n")
    try:
        return msgspec.json.decode(first, type=_Stamped).metadata.generation
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0


def encode_next(document: DeviceMetadata, existing: bytes | None) -> bytes:
    """Returns the text that should replace `existing`, the present text of a file.

    It is the same text if the content is the same. Otherwise it has the next generation.
    """
    generation = generation_of(existing)
    if generation:
        same = encode(document, generation)
        if same == existing:
            return same
    return encode(document, generation + 1)


class MetadataFolder:
    """The metadata files of all claims: one for each request of a claim.

    The caller of a method that changes files holds the lock of the checkpoints.
    """

    def __init__(self, folder: Path, driver: str, published: Published) -> None:
        self._files = claim_files.ClaimFiles(folder)
        self._driver = driver
        self._published = published

    def mounts(self, prepared: PreparedClaim) -> dict[str, Mount]:
        """Returns the mount of each request's file, by the name of the request."""
        mounts: dict[str, Mount] = {}
        for request in _requests(prepared):
            source = self._files.path(names.metadata_file(prepared.uid, request))
            target = names.metadata_target(
                self._driver, prepared.name, prepared.pod_claim_name, request
            )
            mounts[request] = Mount(source=source, target=target)
        return mounts

    def ensure(self, prepared: PreparedClaim, inventory: Inventory) -> bool:
        """Writes the claim's files that are missing or differ; returns True if it wrote any.

        A file whose content changes gets the next generation, by which readers notice the change.
        This may be repeated at any time. Raises ClaimError like `build`. An OSError leaves each
        file either as it was or with its new content.
        """
        # This raises before anything is written.
        documents = build(prepared, self._driver, inventory, self._published)

        written = False
        for request, document in documents.items():
            written |= self._files.ensure(
                names.metadata_file(prepared.uid, request),
                document,
                functools.partial(encode_next, document),
            )
        return written

    def are_right(self, prepared: PreparedClaim, inventory: Inventory) -> bool:
        """Returns True if `ensure` would write nothing. Raises ClaimError as `build`."""
        documents = build(prepared, self._driver, inventory, self._published)
        for request, document in documents.items():
            if not self._files.is_right(names.metadata_file(prepared.uid, request), document):
                return False
        return True

    def remove(self, prepared: PreparedClaim) -> None:
        """Removes the claim's files. Files that are gone are no error."""
        for request in _requests(prepared):
            self._files.remove(names.metadata_file(prepared.uid, request))

    def forget(self, prepared: PreparedClaim) -> None:
        """Ignores changes of the claim's files by others until the next `ensure`. They stay."""
        for request in _requests(prepared):
            self._files.forget(names.metadata_file(prepared.uid, request))

    def find_claim(self, uid: str) -> tuple[str, str] | None:
        """Returns namespace and name of a claim from its files, or None if the files do not have
        them.
        """
        for name in self._names_of(uid):
            text = claim_files.read_if_readable(self._files.path(name)) or b""
            first, _, _ = text.partition(b"\n")
            try:
                meta = msgspec.json.decode(first, type=_Described).metadata
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
            if meta.uid == uid and meta.namespace and meta.name:
                return meta.namespace, meta.name
        return None

    def remove_all(self, uid: str) -> None:
        """Removes the files of a claim whose requests are not known."""
        for name in self._names_of(uid):
            self._files.remove(name)

    def remove_others(self, prepared: PreparedClaim) -> None:
        """Removes the claim's files for requests that it does not have now."""
        current = {names.metadata_file(prepared.uid, each) for each in _requests(prepared)}
        for name in set(self._names_of(prepared.uid)) - current:
            self._files.remove(name)

    def _names_of(self, uid: str) -> list[str]:
        return sorted(name for name in self._files.list_names() if _uid_of(name) == uid)

    def keep(self, claims: Iterable[PreparedClaim], others: Collection[str] = ()) -> None:
        """Removes all files except those of these claims, and of `others`, which are uids.

        No thread may be writing meanwhile.
        """
        current: set[str] = set()
        for prepared in claims:
            for request in _requests(prepared):
                current.add(names.metadata_file(prepared.uid, request))

        for name in self._files.sweep() - current:
            if _uid_of(name) not in others:
                self._files.remove(name)
        self._files.keep(current)

    def is_disturbed(self) -> bool:
        """Returns True if others have removed or changed a file of ours since its `ensure`."""
        return self._files.is_disturbed()

    def disturbances(self) -> Iterator[bool]:
        """Yields for each file whether others have disturbed it: see ClaimFiles."""
        return self._files.disturbances()


def _uid_of(name: str) -> str:
    """Returns the claim's uid in the name of a file: see names.metadata_file."""
    return name.rpartition("_")[0]


def _requests(prepared: PreparedClaim) -> set[str]:
    return {request for device in prepared.devices for request in device.requests}
