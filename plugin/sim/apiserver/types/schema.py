"""How a kind's values merge: which lists have keys, which maps have entries of one type, what is
taken whole.

The resource API's kinds have it from their field tables. The kinds around it are known only by
their lists with keys: whatever is not listed is a struct if it is a map, and taken whole if it is a
list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from ....api.objects import meta, models
from ....api.objects.shapes import Shape, fields_of


@dataclass(frozen=True)
class Schema:
    keys: tuple[str, ...] = ()  # of a list: what tells its items apart
    unique: bool = False  # a list that is a set
    whole: bool = False  # a map that is one value
    fields: Mapping[str, Schema] = field(default_factory=dict)
    entries: bool = False  # a map whose names are data: each entry is a value of its own
    item: Schema | None = None  # of a list, or of a map with entries

    @property
    def granular(self) -> bool:
        """A list whose items have owners of their own."""
        return bool(self.keys) or self.unique

    def child(self, name: str) -> Schema:
        return self.fields.get(name) or self.item or FREE

    def declares(self, name: str) -> bool:
        """Is the name a field of a struct, rather than an entry of a map?"""
        return not self.entries or name in self.fields


FREE = Schema()
WHOLE = Schema(whole=True)


def of_shape(shape: Shape) -> Schema:
    if shape.kind == "any":
        return WHOLE  # what drivers put there is theirs: one value
    if shape.kind == "struct" and shape.struct:
        fields = {name: of_shape(f.shape) for name, f in fields_of(shape.struct).items()}
        return Schema(fields=fields, whole=getattr(shape.struct, "atomic", False))
    if shape.kind == "map" and shape.item:
        return Schema(entries=True, item=of_shape(shape.item))
    if shape.kind == "list" and shape.item:
        return Schema(keys=shape.keys, unique=shape.unique, item=of_shape(shape.item))
    return FREE


METADATA = of_shape(Shape("struct", struct=meta.ObjectMeta))

# Kinds around the resource API: their lists with keys, `*` for an item, `{}` for a map with
# entries, `set` for a set,
# and `whole` for a map that is one value.
KEYED: dict[str, dict[str, str]] = {
    "Pod": {
        "spec.containers": "name",
        "spec.containers.*.env": "name",
        "spec.containers.*.ports": "containerPort,protocol",
        "spec.containers.*.volumeMounts": "mountPath",
        "spec.containers.*.resources.claims": "name",
        "spec.containers.*.resources.limits": "{}",
        "spec.containers.*.resources.requests": "{}",
        "spec.initContainers": "name",
        "spec.initContainers.*.env": "name",
        "spec.initContainers.*.resources.claims": "name",
        "spec.volumes": "name",
        "spec.imagePullSecrets": "name",
        "spec.nodeSelector": "whole",
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
        "status.capacity": "{}",
        "status.allocatable": "{}",
    },
    "Namespace": {"spec.finalizers": "set", "status.conditions": "type"},
    "ConfigMap": {"data": "{}", "binaryData": "{}"},
    "ServiceAccount": {"secrets": "name"},
}

TEMPLATE = {
    f"spec.template.{path}": rule for path, rule in KEYED["Pod"].items() if path.startswith("spec.")
}
TEMPLATE |= {"spec.template.metadata.labels": "{}", "spec.template.metadata.annotations": "{}"}
TEMPLATE |= {"spec.selector": "whole", "status.conditions": "type"}
KEYED |= {"Deployment": TEMPLATE, "DaemonSet": TEMPLATE}


@cache
def of_kind(group: str, version: str, kind: str) -> Schema:
    """What is known of the kind; for one that is not known, its metadata."""
    for name in (version, f"{version}-1.31") if group == models.GROUP else ():
        if name in models.VERSIONS and kind in models.kinds(name):
            return of_shape(Shape("struct", struct=models.kinds(name)[kind]))
    tree: dict[str, object] = {}
    for path, rule in KEYED.get(kind, {}).items():
        place = tree
        for step in path.split("."):
            place = place.setdefault(step, {})  # type: ignore[assignment]
        place["="] = rule
    found = _of_tree(tree)
    return Schema(fields={**found.fields, "metadata": METADATA})


def _of_tree(tree: Mapping[str, object]) -> Schema:
    rule = tree.get("=")
    fields = {
        name: _of_tree(below)
        for name, below in tree.items()
        if isinstance(below, dict) and name != "*"
    }
    item = tree.get("*")
    return Schema(
        keys=tuple(str(rule).split(",")) if rule and rule not in ("set", "{}", "whole") else (),
        unique=rule == "set",
        whole=rule == "whole",
        fields=fields,
        entries=rule == "{}",
        item=_of_tree(item) if isinstance(item, dict) else None,
    )
