"""What a user may do: the rules of roles and cluster roles that are bound to them, and how a no is
worded.

Roles are read from the store each time: there are few, and they may change. The group
system:masters may do everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ....api.document import Document
from ..storage.store import Store
from ..types.resource import RBAC_GROUP, GroupResource
from ..types.status_errors import StatusError
from ..types.user import User

ROLES = GroupResource("roles", RBAC_GROUP, "Role")
CLUSTER_ROLES = GroupResource("clusterroles", RBAC_GROUP, "ClusterRole")
BINDINGS = GroupResource("rolebindings", RBAC_GROUP, "RoleBinding")
CLUSTER_BINDINGS = GroupResource("clusterrolebindings", RBAC_GROUP, "ClusterRoleBinding")
MASTERS = "system:masters"


@dataclass(frozen=True)
class Attributes:
    """`path` alone for what is no object."""

    verb: str
    group: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def resource(self) -> str:
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


def allows(store: Store, user: User, attributes: Attributes) -> tuple[bool, str]:
    """And with a no, what was wrong with the bindings."""
    if MASTERS in user.groups:
        return True, ""
    missing: list[str] = []
    for rules in _bound(store, user, attributes.namespace, missing):
        if any(_covers(rule, attributes) for rule in rules):
            return True, ""
    if not missing:
        return False, ""
    listed = missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]"
    return False, f"RBAC: {listed}"


def rules_of(store: Store, user: User, namespace: str) -> list[Document]:
    """Everything that the user may do in a namespace."""
    if MASTERS in user.groups:
        return [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]
    return [rule for rules in _bound(store, user, namespace, []) for rule in rules]


def check(store: Store, user: User, attributes: Attributes) -> None:
    allowed, why = allows(store, user, attributes)
    if not allowed:
        raise forbidden(user, attributes, why)


def forbidden(user: User, attributes: Attributes, why: str = "") -> StatusError:
    end = f": {why}" if why else ""
    if not attributes.plural:
        said = (
            f'forbidden: User "{user.name}" cannot {attributes.verb} path "{attributes.path}"{end}'
        )
        return StatusError(403, "Forbidden", said, {})
    resource = f"{attributes.plural}.{attributes.group}" if attributes.group else attributes.plural
    subject = f'{resource} "{attributes.name}"' if attributes.name else resource
    where = (
        f'in the namespace "{attributes.namespace}"'
        if attributes.namespace
        else "at the cluster scope"
    )
    said = (
        f'{subject} is forbidden: User "{user.name}" cannot {attributes.verb} resource "{attributes.resource}" '
        f'in API group "{attributes.group}" {where}{end}'
    )
    details = {"name": attributes.name, "group": attributes.group, "kind": attributes.plural}
    return StatusError(
        403, "Forbidden", said, {name: value for name, value in details.items() if value}
    )


def _bound(
    store: Store, user: User, namespace: str, missing: list[str]
) -> Iterator[list[Document]]:
    """The rules of every role that is bound to the user; what a binding names and is not there is
    missing.
    """
    found = [("", binding) for binding in store.page(CLUSTER_BINDINGS).items]
    if namespace:
        found += [(namespace, binding) for binding in store.page(BINDINGS, namespace).items]
    for where, binding in found:
        if not any(_is(subject, user, where) for subject in binding.get("subjects") or ()):
            continue
        ref = binding.get("roleRef") or {}
        kind, name = ref.get("kind", ""), ref.get("name", "")
        own = kind == "Role"
        role = store.find(ROLES if own else CLUSTER_ROLES, where if own else "", name)
        if role is None:
            missing.append(f'{kind.lower()}.{RBAC_GROUP} "{name}" not found')
        else:
            yield role.get("rules") or []


def _is(subject: Document, user: User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return bool(name == user.name)
    if kind == "Group":
        return name in user.groups
    where = subject.get("namespace") or namespace
    return kind == "ServiceAccount" and user.name == f"system:serviceaccount:{where}:{name}"


def _covers(rule: Document, attributes: Attributes) -> bool:
    verbs = rule.get("verbs") or ()
    if "*" not in verbs and attributes.verb not in verbs:
        return False
    if not attributes.plural:
        return any(
            _path_matches(path, attributes.path) for path in rule.get("nonResourceURLs") or ()
        )
    groups, resources, names = (
        rule.get(part) or () for part in ("apiGroups", "resources", "resourceNames")
    )
    if "*" not in groups and attributes.group not in groups:
        return False
    wanted = {"*", attributes.resource} | (
        {f"*/{attributes.subresource}"} if attributes.subresource else set()
    )
    return bool(wanted & set(resources)) and (not names or attributes.name in names)


def _path_matches(rule: str, path: str) -> bool:
    return rule in ("*", path) or (rule.endswith("*") and path.startswith(rule.rstrip("*")))
