"""Who may write what into a claim's status, beyond the right to write it: Kubernetes asks since
1.36.

Allocation and reservations take the right to bind claims. The entry of a device takes a right for
its driver: on every node, or only where the writer's token and the allocation name the same node.
"""

from __future__ import annotations

from ....api.document import Document
from ..storage.store import Store
from ..types import status_errors
from ..types.status_errors import Cause
from ..types.user import User
from ..wire.resource_request import ResourceRequest
from . import rbac

SINCE = ("1.37",)  # of the releases that there are
NODE = "authentication.kubernetes.io/node-name"
PREFIXES = ("associated-node:", "arbitrary-node:")


def check(
    store: Store, release: str, request: ResourceRequest, old: Document | None, new: Document | None
) -> None:
    if release not in SINCE or request.info.subresource != "status" or old is None or new is None:
        return
    if request.served.kind.resource.kind != "ResourceClaim" or rbac.MASTERS in request.user.groups:
        return
    before, after = old.get("status") or {}, new.get("status") or {}
    causes = []
    binds = any(before.get(part) != after.get(part) for part in ("allocation", "reservedFor"))
    if binds and (why := _denied(store, request, [request.info.verb], "binding", "", "")):
        said = 'changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", '
        said += f'verb="{request.info.verb}" permission: {why}'
        causes.append(Cause("FieldValueForbidden", f"Forbidden: {said}", "status.allocation"))
    if after.get("allocation"):
        prefixes = PREFIXES if _is_there(request.user, after["allocation"]) else PREFIXES[1:]
        verbs = [prefix + request.info.verb for prefix in prefixes]
        for driver in _changed(before, after):
            if why := _denied(store, request, verbs, "driver", request.info.namespace, driver):
                said = 'changing status.devices requires resource="resourceclaims/driver", '
                said += f'verb="[{" ".join(verbs)}]" permission: {why}'
                causes.append(Cause("FieldValueForbidden", f"Forbidden: {said}", "status.devices"))
    if causes:
        raise status_errors.invalid(request.served.kind.resource, request.info.name, causes)


def _denied(
    store: Store,
    request: ResourceRequest,
    verbs: list[str],
    subresource: str,
    namespace: str,
    name: str,
) -> str:
    """Why none of the verbs is allowed, in the words for the first; empty if one is."""
    words = []
    for verb in verbs:
        attributes = rbac.Attributes(
            verb, request.served.group, request.info.resource, subresource, namespace, name
        )
        allowed, why = rbac.allows(store, request.user, attributes)
        if allowed:
            return ""
        words.append(str(rbac.forbidden(request.user, attributes, why)))
    return words[0]


def _changed(before: Document, after: Document) -> list[str]:
    """The drivers whose entries came, went or say something else."""
    devices = [
        {_key(entry): entry for entry in status.get("devices") or ()} for status in (before, after)
    ]
    keys = {*devices[0], *devices[1]}
    return sorted({key[0] for key in keys if devices[0].get(key) != devices[1].get(key)})


def _key(entry: Document) -> tuple[str, ...]:
    return tuple(entry.get(part) or "" for part in ("driver", "pool", "device", "shareID"))


def _is_there(user: User, allocation: Document) -> bool:
    """A service account whose token names the one node that the claim is allocated on."""
    nodes = user.extra.get(NODE, [])
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if not user.name.startswith("system:serviceaccount:") or len(nodes) != 1 or len(terms) != 1:
        return False
    fields = terms[0].get("matchFields") or []
    if terms[0].get("matchExpressions") or len(fields) != 1:
        return False
    wanted = {"key": "metadata.name", "operator": "In", "values": nodes}
    return {part: fields[0].get(part) for part in wanted} == wanted
