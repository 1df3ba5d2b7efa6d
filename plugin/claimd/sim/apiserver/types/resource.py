"""The resource of a request, and the resources that the server itself uses."""

from __future__ import annotations

from dataclasses import dataclass

RBAC_GROUP = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class GroupResource:
    """A resource in the form that messages have: resourceclaims.resource.k8s.io."""

    plural: str
    group: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def kind_name(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


DEFINITIONS_GROUP = "apiextensions.k8s.io"
DEFINITIONS = GroupResource(
    "customresourcedefinitions", DEFINITIONS_GROUP, "CustomResourceDefinition"
)
NAMESPACES = GroupResource("namespaces", "", "Namespace")
NODES = GroupResource("nodes", "", "Node")
PODS = GroupResource("pods", "", "Pod")
SERVICE_ACCOUNTS = GroupResource("serviceaccounts", "", "ServiceAccount")
POD_GROUPS = GroupResource("podgroups", "scheduling.k8s.io", "PodGroup")
PRIORITY_CLASSES = GroupResource("priorityclasses", "scheduling.k8s.io", "PriorityClass")
