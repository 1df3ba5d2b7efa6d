"""A registry whose times, uids and letters are counted, and objects to put into it."""

import itertools

import pytest

from claimd.sim.apiserver.storage import patches
from claimd.sim.apiserver.storage.registry import Registry
from claimd.sim.apiserver.storage.store import Store
from claimd.sim.apiserver.types import status_errors
from claimd.sim.apiserver.types.kind import Kind
from claimd.sim.apiserver.types.options import WriteOptions
from claimd.sim.apiserver.types.resource import GroupResource

CLAIMS = Kind(
    GroupResource("resourceclaims", "resource.k8s.io", "ResourceClaim"),
    "v1",
    namespaced=True,
    has_status=True,
    has_generation=False,
)
SLICES = Kind(
    GroupResource("resourceslices", "resource.k8s.io", "ResourceSlice"),
    "v1",
    namespaced=False,
    has_status=False,
    has_generation=True,
)
PODS = Kind(
    GroupResource("pods", "", "Pod"),
    "v1",
    namespaced=True,
    has_status=True,
    has_generation=False,
)
ME, STATUS = (
    WriteOptions(field_manager="me"),
    WriteOptions(field_manager="me", subresource="status"),
)


def new(release="1.37"):
    ticks, uids, letters = itertools.count(), itertools.count(1), itertools.count(1)
    return Registry(
        Store(),
        lambda: f"T{next(ticks)}",
        lambda: f"uid-{next(uids)}",
        lambda: f"{next(letters):05d}".replace("0", "b"),
        release,
    )


def claim(name="c", **parts):
    return {"metadata": {"name": name}} | parts


def slice_(driver="d", **metadata):
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": "s"} | metadata,
        "spec": {"driver": driver, "pool": pool, "allNodes": True},
    }


def pod(name):
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def refusal(action, *arguments, **named):
    with pytest.raises(status_errors.StatusError) as caught:
        action(*arguments, **named)
    return caught.value.code, str(caught.value)


def patch(registry, kind, name, form, change, options):
    """As a request has it that changes the object in its storage version."""

    def patched(old):
        return patches.apply_patch(kind.schema, old, form, change)

    return registry.change(kind, "ns", name, patched, options)
