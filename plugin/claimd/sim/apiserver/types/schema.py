"""How the values of a kind merge: what server-side apply and strategic merge patches go by.

The resource API's kinds have it from their field tables. The kinds around it are known only by
their lists with keys: whatever is not listed is a struct if it is a map, atomic if it is a list.
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
    """Of one value. In the words of structured merge: associative lists, granular maps, atoms."""

    keys: tuple[str, ...] = ()  # of an associative list: what tells its items apart
    is_set: bool = False  # an associative list of scalars
    atomic: bool = False  # a map that is one value
    fields: Mapping[str, Schema] = field(default_factory=dict)
    is_map: bool = False  # the names are data: each entry is a value of its own
    item: Schema | None = None  # of a list, or of a map's entries

    @property
    def associative(self) -> bool:
        """A list whose items have owners of their own."""
        return bool(self.keys) or self.is_set

    def child(self, name: str) -> Schema:
        return self.fields.get(name) or self.item or UNTYPED

    def declares(self, name: str) -> bool:
        """Is the name a field of a struct, rather than an entry of a map?"""
        return not self.is_map or name in self.fields


class Deduced(Schema):
    """Of what no schema describes: maps have entries, all the way down."""

    def child(self, name: str) -> Schema:
        return self


UNTYPED = Schema()
ATOMIC = Schema(atomic=True)
DEDUCED = Deduced(is_map=True)


def of_shape(shape: Shape) -> Schema:
    """As a field table has it."""
    if shape.kind == "any":
        # What drivers put there is theirs: one value.
        return ATOMIC
    if shape.kind == "struct" and shape.struct:
        children = {name: of_shape(field.shape) for name, field in fields_of(shape.struct).items()}
        return Schema(fields=children, atomic=getattr(shape.struct, "atomic", False))
    if shape.kind == "map" and shape.item:
        return Schema(is_map=True, item=of_shape(shape.item))
    if shape.kind == "list" and shape.item:
        return Schema(keys=shape.keys, is_set=shape.unique, item=of_shape(shape.item))
    return UNTYPED


METADATA = of_shape(Shape("struct", struct=meta.ObjectMeta))

# The kinds around the resource API, by path, `*` for the items of a list. A list has its keys or is
# a `set`; a map is a `map` of entries or `atomic`.
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
}
NO_KEYS = ("set", "map", "atomic")

# What has a template of pods has the rules of pods below it.
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
def of_kind(group: str, version: str, kind: str) -> Schema:
    """What is known of the kind; of one that is not known, its metadata."""
    if group == models.GROUP:
        for name in (version, f"{version}-1.31"):
            if name in models.VERSIONS and kind in models.kinds(name):
                return of_shape(Shape("struct", struct=models.kinds(name)[kind]))

    # The paths as a tree, each node with its rule under a name that no field has.
    tree: dict[str, Any] = {}
    for path, rule in MERGE_RULES.get(kind, {}).items():
        node = tree
        for step in path.split("."):
            node = node.setdefault(step, {})
        node["="] = rule
    return Schema(fields={**_of_tree(tree).fields, "metadata": METADATA})


def _of_tree(tree: Mapping[str, Any]) -> Schema:
    rule = tree.get("=", "")
    children = {}
    for name, below in tree.items():
        if name not in ("=", "*"):
            children[name] = _of_tree(below)
    return Schema(
        keys=tuple(rule.split(",")) if rule and rule not in NO_KEYS else (),
        is_set=rule == "set",
        atomic=rule == "atomic",
        fields=children,
        is_map=rule == "map",
        item=_of_tree(tree["*"]) if "*" in tree else None,
    )
