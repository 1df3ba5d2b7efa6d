"""Authorization by RBAC: the rules of the roles that are bound to a user, and the denials.

Roles are read from the store for each decision: there are few, and they may change. The group
system:masters may do everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from claimd.kubernetes.api.document import Document

from ..storage.store import Store
from ..types.resource import RBAC_GROUP, GroupResource
from ..types.status_errors import StatusError
from ..types.user import User

ROLES = GroupResource("roles", RBAC_GROUP, "Role")
CLUSTER_ROLES = GroupResource("clusterroles", RBAC_GROUP, "ClusterRole")
ROLE_BINDINGS = GroupResource("rolebindings", RBAC_GROUP, "RoleBinding")
CLUSTER_ROLE_BINDINGS = GroupResource("clusterrolebindings", RBAC_GROUP, "ClusterRoleBinding")
MASTERS = "system:masters"


@dataclass(frozen=True)
class Attributes:
    """The request that a decision is about: a verb on a resource or on a non-resource path."""

    verb: str
    group: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def resource(self) -> str:
        """The resource with its subresource, as in rules: pods/status."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


def authorize(store: Store, user: User, attributes: Attributes) -> tuple[bool, str]:
    """Returns True if the user has the permission; otherwise False and the reason.

    The reason names the roles that bindings refer to and that do not exist. It is mostly empty.
    """
    if MASTERS in user.groups:
        return True, ""
    missing: list[str] = []
    for rules in _bound_rules(store, user, attributes.namespace, missing):
        if any(_allows(rule, attributes) for rule in rules):
            return True, ""
    if not missing:
        return False, ""
    listed = missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]"
    return False, f"RBAC: {listed}"


def check(store: Store, user: User, attributes: Attributes) -> None:
    """Raises a 403 if the user does not have the permission."""
    allowed, why = authorize(store, user, attributes)
    if not allowed:
        raise forbidden(user, attributes, why)


def rules_for(store: Store, user: User, namespace: str) -> list[Document]:
    """Returns all rules of the user in a namespace."""
    if MASTERS in user.groups:
        return [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]
    every: list[Document] = []
    for rules in _bound_rules(store, user, namespace, []):
        every += rules
    return every


def forbidden(user: User, attributes: Attributes, why: str = "") -> StatusError:
    who = f'User "{user.name}" cannot {attributes.verb}'
    reason = f": {why}" if why else ""
    if not attributes.plural:
        message = f'forbidden: {who} path "{attributes.path}"{reason}'
        return StatusError(403, "Forbidden", message, {})

    subject, name = attributes.plural, attributes.name
    if attributes.group:
        subject = f"{subject}.{attributes.group}"
    if name:
        subject = f'{subject} "{name}"'
    where = "at the cluster scope"
    if attributes.namespace:
        where = f'in the namespace "{attributes.namespace}"'
    what = f'resource "{attributes.resource}" in API group "{attributes.group}"'
    message = f"{subject} is forbidden: {who} {what} {where}{reason}"

    details = {"name": name, "group": attributes.group, "kind": attributes.plural}
    details = {part: value for part, value in details.items() if value}
    return StatusError(403, "Forbidden", message, details)


def _bound_rules(
    store: Store, user: User, namespace: str, missing: list[str]
) -> Iterator[list[Document]]:
    """Yields the rules of each role that is bound to the user.

    A binding to a role that does not exist adds a text to `missing`.
    """
    bindings = [("", binding) for binding in store.page(CLUSTER_ROLE_BINDINGS).items]
    if namespace:
        own = store.page(ROLE_BINDINGS, namespace).items
        bindings += [(namespace, binding) for binding in own]

    for binding_namespace, binding in bindings:
        subjects = binding.get("subjects") or ()
        if not any(_is_subject(subject, user, binding_namespace) for subject in subjects):
            continue
        reference = binding.get("roleRef") or {}
        kind, name = reference.get("kind", ""), reference.get("name", "")
        # A Role is in the namespace of its binding.
        if kind == "Role":
            role = store.find(ROLES, binding_namespace, name)
        else:
            role = store.find(CLUSTER_ROLES, "", name)
        if role is None:
            missing.append(f'{kind.lower()}.{RBAC_GROUP} "{name}" not found')
        else:
            yield role.get("rules") or []


def _is_subject(subject: Document, user: User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return bool(name == user.name)
    if kind == "Group":
        return name in user.groups
    namespace = subject.get("namespace") or namespace
    return kind == "ServiceAccount" and user.name == f"system:serviceaccount:{namespace}:{name}"


def _allows(rule: Document, attributes: Attributes) -> bool:
    verbs = rule.get("verbs") or ()
    if "*" not in verbs and attributes.verb not in verbs:
        return False
    if not attributes.plural:
        paths = rule.get("nonResourceURLs") or ()
        return any(_path_matches(path, attributes.path) for path in paths)

    # The rule must cover the group, the resource and the name.
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    if "*" not in groups and attributes.group not in groups:
        return False
    matching = {"*", attributes.resource}
    if attributes.subresource:
        matching.add(f"*/{attributes.subresource}")
    if not matching & set(resources):
        return False

    names = rule.get("resourceNames") or ()
    return not names or attributes.name in names


def _path_matches(pattern: str, path: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern.rstrip("*"))
    return pattern == path
