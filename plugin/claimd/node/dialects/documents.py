"""Strict parsing of a vendor's opaque configurations: unknown fields are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec

from claimd.common import errors, plain_text
from claimd.common.names import CONFIG_API_VERSION


class Strict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of a document. Fields have the API's names, and no other fields are allowed."""


class Config(Strict, frozen=True, kw_only=True):
    """The fields that every document has."""

    api_version: str
    kind: str


class Iommu(Strict, frozen=True, kw_only=True):
    backend_policy: Literal["LegacyOnly", "PreferIommuFD"] = "LegacyOnly"
    enable_api_device: bool = msgspec.field(name="enableAPIDevice", default=False)


class VfioDeviceConfig(Config, frozen=True, kw_only=True):
    """A configuration that changes nothing: containers get the nodes of both IOMMU interfaces anyway."""

    iommu: Iommu | None = None


_Kind = TypeVar("_Kind", bound=Config)


def parse(
    document: Mapping[str, object], api_version: str, kinds: Mapping[str, type[_Kind]]
) -> _Kind:
    """Returns the document as one of the kinds.

    Raises ClaimError if the document has another version or kind, or is invalid.
    """
    seen_version, kind = document.get("apiVersion"), document.get("kind")
    form = kinds.get(kind) if isinstance(kind, str) else None
    if seen_version != api_version or form is None:
        raise errors.ClaimError(
            f"it is {plain_text.brief(str(kind))} of {plain_text.brief(str(seen_version))}; this driver "
            f"takes {', '.join(kinds)} of {api_version}, and GpuConfig of {CONFIG_API_VERSION}"
        )
    try:
        return msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        raise errors.ClaimError(
            f"{kind} of {api_version}: {plain_text.brief(str(error))}"
        ) from error
