"""The rights that a write of a claim's status needs in addition to the right to update the status.

The API server checks them since 1.36. A change of the allocation or of the reservations needs the
right to bind claims. A change of a device's entry needs a right for the driver of that device. That
right holds on every node, or only if the writer's token and the allocation name the same node.
"""

from __future__ import annotations

from claimd.kubernetes.api.document import Document

from ..rules import profile
from ..storage.store import Store
from ..types import status_errors
from ..types.status_errors import Cause
from ..types.user import User
from ..wire.resource_request import ResourceRequest
from . import rbac

NODE_NAME = "authentication.kubernetes.io/node-name"
ASSOCIATED_NODE, ARBITRARY_NODE = "associated-node:", "arbitrary-node:"


def check(
    store: Store,
    release: str,
    request: ResourceRequest,
    old: Document | None,
    new: Document | None,
) -> None:
    """Checks that the writer has the right to each change of a claim's status.

    Raises status 422 with the fields that the writer may not change. Other requests always pass.
    """
    if profile.GRANULAR_STATUS_AUTHORIZATION not in profile.FEATURE_GATES[release]:
        return
    if request.info.subresource != "status":
        return
    if request.served.kind.resource.kind != "ResourceClaim" or old is None or new is None:
        return
    if rbac.MASTERS in request.user.groups:
        return

    before, after = old.get("status") or {}, new.get("status") or {}
    causes = _binding_causes(store, request, before, after)
    if after.get("allocation"):
        causes += _driver_causes(store, request, before, after)
    if causes:
        raise status_errors.invalid(request.served.kind.resource, request.info.name, causes)


def _binding_causes(
    store: Store, request: ResourceRequest, before: Document, after: Document
) -> list[Cause]:
    parts = ("allocation", "reservedFor")
    if all(before.get(part) == after.get(part) for part in parts):
        return []
    verb = request.info.verb
    why = _find_denial(store, request, [verb], "binding", "", "")
    if not why:
        return []
    needs = f'requires resource="resourceclaims/binding", verb="{verb}" permission'
    changing = "changing status.allocation or status.reservedFor"
    return [_forbidden("status.allocation", f"{changing} {needs}: {why}")]


def _driver_causes(
    store: Store, request: ResourceRequest, before: Document, after: Document
) -> list[Cause]:
    verbs = [f"{ARBITRARY_NODE}{request.info.verb}"]
    if _is_on_node_of(request.user, after["allocation"]):
        verbs.insert(0, f"{ASSOCIATED_NODE}{request.info.verb}")
    needs = f'requires resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission'

    causes = []
    for driver in _changed_drivers(before, after):
        why = _find_denial(store, request, verbs, "driver", request.info.namespace, driver)
        if why:
            message = f"changing status.devices {needs}: {why}"
            causes.append(_forbidden("status.devices", message))
    return causes


def _forbidden(field: str, message: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {message}", field)


def _find_denial(
    store: Store,
    request: ResourceRequest,
    verbs: list[str],
    subresource: str,
    namespace: str,
    name: str,
) -> str:
    """Returns the denial of the first verb, or an empty text if any of the verbs is allowed."""
    denials = []
    group, plural = request.served.group, request.info.resource
    for verb in verbs:
        attributes = rbac.Attributes(verb, group, plural, subresource, namespace, name)
        allowed, why = rbac.authorize(store, request.user, attributes)
        if allowed:
            return ""
        denials.append(str(rbac.forbidden(request.user, attributes, why)))
    return denials[0]


def _changed_drivers(before: Document, after: Document) -> list[str]:
    """Returns the drivers whose entries were added, removed or changed."""
    old, new = _by_device(before), _by_device(after)
    return sorted({key[0] for key in {*old, *new} if old.get(key) != new.get(key)})


def _by_device(status: Document) -> dict[tuple[str, ...], Document]:
    key = ("driver", "pool", "device", "shareID")
    entries = {}
    for entry in status.get("devices") or ():
        entries[tuple(entry.get(part) or "" for part in key)] = entry
    return entries


def _is_on_node_of(user: User, allocation: Document) -> bool:
    """Returns True if a service account's token names the only node of the allocation."""
    nodes = user.extra.get(NODE_NAME, [])
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if not user.name.startswith("system:serviceaccount:") or len(nodes) != 1 or len(terms) != 1:
        return False
    fields = terms[0].get("matchFields") or []
    if terms[0].get("matchExpressions") or len(fields) != 1:
        return False
    # The selector must be exactly the one that selects this node by its name.
    of_node = {"key": "metadata.name", "operator": "In", "values": nodes}
    return all(fields[0].get(part) == value for part, value in of_node.items())
