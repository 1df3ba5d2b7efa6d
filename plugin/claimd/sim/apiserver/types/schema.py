"""The merge rules of a kind, for server-side apply and strategic merge patches.

The kinds of the resource API have their rules from their field tables. For other kinds
`MERGE_RULES` lists the exceptions: a map that is not listed is a struct, and a list that is not
listed is atomic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from claimd.kubernetes.api.objects import meta, models
from claimd.kubernetes.api.objects.shapes import Shape, fields_of


@dataclass(frozen=True)
class Schema:
    """The merge rules of one value: an associative list, a granular map, a struct, or an atom.

    The words are those of Kubernetes' structured merge.
    """

    # The fields that tell the items of an associative list apart.
    keys: tuple[str, ...] = ()
    # An associative list of scalars.
    is_set: bool = False
    # A map that is one value.
    atomic: bool = False
    fields: Mapping[str, Schema] = field(default_factory=dict)
    # The keys of the map are data, and each entry is a value that has an owner.
    is_map: bool = False
    # The rules of a list's items or of a map's entries.
    item: Schema | None = None

    @property
    def associative(self) -> bool:
        """True for a list whose items have owners of their own."""
        return bool(self.keys) or self.is_set

    def child(self, name: str) -> Schema:
        return self.fields.get(name) or self.item or UNTYPED

    def declares(self, name: str) -> bool:
        """Returns True if the name is a field of a struct, rather than an entry of a map."""
        return not self.is_map or name in self.fields


class Deduced(Schema):
    """A value that no schema describes. Its maps are granular at every depth."""

    def child(self, name: str) -> Schema:
        return self


UNTYPED = Schema()
ATOMIC = Schema(atomic=True)
DEDUCED = Deduced(is_map=True)


def shape_schema(shape: Shape) -> Schema:
    """Returns the merge rules of a type in a field table."""
    if shape.kind == "any":
        # Drivers define the content of such a field, so it is one value.
        return ATOMIC
    if shape.kind == "struct" and shape.struct:
        children = {
            name: shape_schema(field.shape) for name, field in fields_of(shape.struct).items()
        }
        return Schema(fields=children, atomic=getattr(shape.struct, "atomic", False))

    if shape.kind == "map" and shape.item:
        return Schema(is_map=True, item=shape_schema(shape.item))
    if shape.kind == "list" and shape.item:
        return Schema(keys=shape.keys, is_set=shape.unique, item=shape_schema(shape.item))
    return UNTYPED


METADATA = shape_schema(Shape("struct", struct=meta.ObjectMeta))

# The rules of kinds outside the resource API, by path, with `*` for the items of a list. A list has
# its keys or is a `set`. A map is a `map` of entries or `atomic`.
MERGE_RULES: dict[str, dict[str, str]] = {
    "Pod": {
        "spec.containers": "name",
        "spec.containers.*.env": "name",
        "spec.containers.*.ports": "containerPort,protocol",
        "spec.containers.*.volumeMounts": "mountPath",
        "spec.containers.*.resources.claims": "name",
        "spec.containers.*.resources.limits": "map",
        "spec.containers.*.resources.requests": "map",
        "spec.initContainers": "name",
        "spec.initContainers.*.env": "name",
        "spec.initContainers.*.resources.claims": "name",
        "spec.volumes": "name",
        "spec.imagePullSecrets": "name",
        "spec.nodeSelector": "atomic",
        "spec.resourceClaims": "name",
        "spec.topologySpreadConstraints": "topologyKey,whenUnsatisfiable",
        "status.conditions": "type",
        "status.podIPs": "ip",
        "status.hostIPs": "ip",
        "status.resourceClaimStatuses": "name",
    },
    "Node": {
        "spec.podCIDRs": "set",
        "status.conditions": "type",
        "status.addresses": "type",
        "status.capacity": "map",
        "status.allocatable": "map",
    },
    "Namespace": {"spec.finalizers": "set", "status.conditions": "type"},
    "ConfigMap": {"data": "map", "binaryData": "map"},
    "ServiceAccount": {"secrets": "name"},
    "PodGroup": {
        "spec.resourceClaims": "name",
        "status.conditions": "type",
        "status.resourceClaimStatuses": "name",
    },
}
NO_KEYS = ("set", "map", "atomic")

# The rules of a pod hold below a template of pods, too.
WORKLOAD = {
    f"spec.template.{path}": rule
    for path, rule in MERGE_RULES["Pod"].items()
    if path.startswith("spec.")
}
WORKLOAD |= {
    "spec.template.metadata.labels": "map",
    "spec.template.metadata.annotations": "map",
    "spec.selector": "atomic",
    "status.conditions": "type",
}
JOB = WORKLOAD | {
    "status.uncountedTerminatedPods.succeeded": "set",
    "status.uncountedTerminatedPods.failed": "set",
}
CRON_JOB = {
    f"spec.jobTemplate.{path}": rule
    for path, rule in WORKLOAD.items()
    if path.startswith("spec.template.")
}
CRON_JOB |= {
    "spec.jobTemplate.metadata.labels": "map",
    "spec.jobTemplate.metadata.annotations": "map",
}
MERGE_RULES |= {
    "CronJob": CRON_JOB,
    "Deployment": WORKLOAD,
    "DaemonSet": WORKLOAD,
    "StatefulSet": WORKLOAD,
    "Job": JOB,
}


@cache
def kind_schema(group: str, version: str, kind: str) -> Schema:
    """Returns the merge rules of a kind. Of an unknown kind only the metadata has rules."""
    if group == models.GROUP:
        for name in (version, f"{version}-1.31"):
            if name in models.VERSIONS and kind in models.kinds(name):
                return shape_schema(Shape("struct", struct=models.kinds(name)[kind]))

    # Turn the paths into a tree. A node has its rule under `=`, a name that no field has.
    tree: dict[str, Any] = {}
    for path, rule in MERGE_RULES.get(kind, {}).items():
        node = tree
        for step in path.split("."):
            node = node.setdefault(step, {})
        node["="] = rule
    return Schema(fields={**_tree_schema(tree).fields, "metadata": METADATA})


def _tree_schema(tree: Mapping[str, Any]) -> Schema:
    rule = tree.get("=", "")
    children = {}
    for name, below in tree.items():
        if name not in ("=", "*"):
            children[name] = _tree_schema(below)

    return Schema(
        keys=tuple(rule.split(",")) if rule and rule not in NO_KEYS else (),
        is_set=rule == "set",
        atomic=rule == "atomic",
        fields=children,
        is_map=rule == "map",
        item=_tree_schema(tree["*"]) if "*" in tree else None,
    )
