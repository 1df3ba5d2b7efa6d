"""The objects that every cluster has: namespaces, priority classes and the roles of all users."""

from __future__ import annotations

from claimd.kubernetes.api.document import Document

from ..catalog import Catalog
from ..rules import priorities
from ..types.options import WriteOptions
from ..types.resource import PRIORITY_CLASSES, RBAC_GROUP
from .registry import Registry

WRITE = WriteOptions(field_manager="kube-apiserver")
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
READ = ["get", "list", "watch"]
EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
HEALTH = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
DISCOVERY = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
]

ROLES: dict[str, list[Document]] = {
    "cluster-admin": [EVERYTHING, {"nonResourceURLs": ["*"], "verbs": ["*"]}],
    "system:basic-user": [
        {
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            "verbs": ["create"],
        },
        {
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["selfsubjectreviews"],
            "verbs": ["create"],
        },
    ],
    "system:discovery": [
        {"nonResourceURLs": [*DISCOVERY, "/version", "/version/"], "verbs": ["get"]}
    ],
    "system:public-info-viewer": [{"nonResourceURLs": HEALTH, "verbs": ["get"]}],
    "view": [
        {
            "apiGroups": ["", "apps", "batch", "coordination.k8s.io", "events.k8s.io"],
            "resources": [
                "configmaps",
                "events",
                "namespaces",
                "pods",
                "pods/status",
                "serviceaccounts",
                "services",
                "daemonsets",
                "deployments",
                "replicasets",
                "statefulsets",
                "controllerrevisions",
                "cronjobs",
                "jobs",
                "leases",
            ],
            "verbs": READ,
        },
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims", "resourceclaims/status", "resourceclaimtemplates"],
            "verbs": READ,
        },
    ],
}
BINDINGS: dict[str, list[str]] = {
    "cluster-admin": ["system:masters"],
    "system:basic-user": ["system:authenticated"],
    "system:discovery": ["system:authenticated"],
    "system:public-info-viewer": ["system:authenticated", "system:unauthenticated"],
}


def make(registry: Registry, catalog: Catalog) -> None:
    """Creates the missing objects, and leaves those that exist as they are."""
    for name in NAMESPACES:
        _ensure(registry, catalog, "namespaces", "", {"metadata": {"name": name}})

    for name, (value, description) in priorities.SYSTEM_CLASSES.items():
        priority_class = {"metadata": {"name": name}, "value": value, "description": description}
        _ensure(registry, catalog, PRIORITY_CLASSES.plural, PRIORITY_CLASSES.group, priority_class)

    for name, rules in ROLES.items():
        role = {"metadata": {"name": name, "labels": LABELS}, "rules": rules}
        _ensure(registry, catalog, "clusterroles", RBAC_GROUP, role)

    for name, groups in BINDINGS.items():
        subjects = [{"kind": "Group", "apiGroup": RBAC_GROUP, "name": group} for group in groups]
        binding = {
            "metadata": {"name": name, "labels": LABELS},
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": name},
            "subjects": subjects,
        }
        _ensure(registry, catalog, "clusterrolebindings", RBAC_GROUP, binding)


def _ensure(registry: Registry, catalog: Catalog, plural: str, group: str, obj: Document) -> None:
    kind = catalog.kind(plural, group)
    if not registry.store.find(kind.resource, "", obj["metadata"]["name"]):
        registry.create(kind, "", obj, WRITE)
