"""What a cluster has before anybody asks for anything: its namespaces, and the roles that every
user has.
"""

from __future__ import annotations

from ....api.document import Document
from ..catalog import Catalog
from ..types.options import WriteOptions
from ..types.resource import RBAC_GROUP
from .registry import Registry

WRITE = WriteOptions(field_manager="kube-apiserver")
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
LABEL = {"kubernetes.io/bootstrapping": "rbac-defaults"}
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
            "apiGroups": ["", "apps", "coordination.k8s.io", "events.k8s.io"],
            "resources": [
                *(
                    "configmaps",
                    "events",
                    "namespaces",
                    "pods",
                    "pods/status",
                    "serviceaccounts",
                    "services",
                ),
                *("daemonsets", "deployments", "replicasets", "leases"),
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
    """Makes what is missing."""

    def ensure(plural: str, group: str, obj: Document) -> None:
        kind = catalog.kind(plural, group)
        if not registry.store.find(kind.resource, "", obj["metadata"]["name"]):
            registry.create(kind, "", obj, WRITE)

    for name in NAMESPACES:
        ensure("namespaces", "", {"metadata": {"name": name}})
    for name, rules in ROLES.items():
        ensure(
            "clusterroles",
            RBAC_GROUP,
            {"metadata": {"name": name, "labels": LABEL}, "rules": rules},
        )
    for name, groups in BINDINGS.items():
        subjects = [{"kind": "Group", "apiGroup": RBAC_GROUP, "name": group} for group in groups]
        ref = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": name}
        ensure(
            "clusterrolebindings",
            RBAC_GROUP,
            {"metadata": {"name": name, "labels": LABEL}, "roleRef": ref, "subjects": subjects},
        )
