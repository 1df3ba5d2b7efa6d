"""Writes plugin/claimd/sim/apiserver/wire/protobuf.txt from Kubernetes' Go types: how its objects look in
protobuf.

    python -m tests.oracle.wire_tables API APIMACHINERY    (folders of the modules k8s.io/api and k8s.io/apimachinery)

Go's struct tags say what the .proto files do not: what is a pointer, what JSON leaves out when it
is empty, what is inlined.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOTS = {  # package: (folder, api version, kinds)
    "meta": ("meta/v1", "v1", ["DeleteOptions"]),
    "core": (
        "core/v1",
        "v1",
        [
            "Binding",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    "policy": ("policy/v1", "policy/v1", ["Eviction", "PodDisruptionBudget"]),
    "apps": (
        "apps/v1",
        "apps/v1",
        ["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
    ),
    "batch": ("batch/v1", "batch/v1", ["CronJob", "Job"]),
    "authentication": (
        "authentication/v1",
        "authentication.k8s.io/v1",
        ["SelfSubjectReview", "TokenRequest", "TokenReview"],
    ),
    "authorization": (
        "authorization/v1",
        "authorization.k8s.io/v1",
        [
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    "admission": (
        "admissionregistration/v1",
        "admissionregistration.k8s.io/v1",
        [
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    "autoscaling": ("autoscaling/v2", "autoscaling/v2", ["HorizontalPodAutoscaler"]),
    "certificates": (
        "certificates/v1",
        "certificates.k8s.io/v1",
        ["CertificateSigningRequest", "ClusterTrustBundle", "PodCertificateRequest"],
    ),
    "discovery": ("discovery/v1", "discovery.k8s.io/v1", ["EndpointSlice"]),
    "flowcontrol": (
        "flowcontrol/v1",
        "flowcontrol.apiserver.k8s.io/v1",
        ["FlowSchema", "PriorityLevelConfiguration"],
    ),
    "networking": (
        "networking/v1",
        "networking.k8s.io/v1",
        ["IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"],
    ),
    "node": ("node/v1", "node.k8s.io/v1", ["RuntimeClass"]),
    "storage": (
        "storage/v1",
        "storage.k8s.io/v1",
        [
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
    "migration": (
        "storagemigration/v1",
        "storagemigration.k8s.io/v1",
        ["StorageVersionMigration"],
    ),
    "scheduling": ("scheduling/v1", "scheduling.k8s.io/v1", ["PriorityClass"]),
    "scheduling1beta1": (
        "scheduling/v1beta1",
        "scheduling.k8s.io/v1beta1",
        ["PodGroup", "Workload"],
    ),
    "coordination": ("coordination/v1", "coordination.k8s.io/v1", ["Lease"]),
    "events": ("events/v1", "events.k8s.io/v1", ["Event"]),
    "rbac": (
        "rbac/v1",
        "rbac.authorization.k8s.io/v1",
        ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    ),
    "resource1": (
        "resource/v1",
        "resource.k8s.io/v1",
        [
            "DeviceClass",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceSlice",
            "DeviceTaintRule",
        ],
    ),
    "resource2": (
        "resource/v1beta2",
        "resource.k8s.io/v1beta2",
        [
            "DeviceClass",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceSlice",
            "DeviceTaintRule",
        ],
    ),
    "resource3": (
        "resource/v1beta1",
        "resource.k8s.io/v1beta1",
        ["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"],
    ),
    "resource4": (
        "resource/v1alpha3",
        "resource.k8s.io/v1alpha3",
        ["DeviceTaintRule", "ResourcePoolStatusRequest"],
    ),
}
FIELD = re.compile(
    r'^\t(?:(\w+)\s+)?(\S+)\s+`json:"([^",]*)((?:,\w+)*)"(?:\s+\S+?)*?\s+protobuf:"(\w+),(\d+)'
)
SPECIAL = {  # what has a form of its own in JSON
    "resource.Quantity": "quantity",
    "metav1.Time": "time",
    "Time": "time",
    "metav1.MicroTime": "microtime",
    "metav1.FieldsV1": "fields",
    "FieldsV1": "fields",
    "runtime.RawExtension": "raw",
    "intstr.IntOrString": "either",
    "IntOrString": "either",
    "[]byte": "bytes",
}
PLAIN = {
    "string": "text",
    "bool": "flag",
    "int": "int",
    "int32": "int",
    "int64": "int",
    "uint32": "int",
}
META, CORE = "meta/v1", "core/v1"
IMPORTS = {
    "apiv1": CORE,
    "metav1": META,
    "v1": CORE,
    "core": CORE,
    "corev1": CORE,
    "schedulingv1alpha3": "scheduling/v1alpha3",
    "types": "types",
    "runtime": "runtime",
}


@dataclass
class Package:
    """The types of one Go package, as text."""

    types: dict[str, str] = field(
        default_factory=dict
    )  # of those that are no structs: what stands after the name
    structs: dict[str, list[str]] = field(default_factory=dict)


def parse(folder: Path) -> Package:
    package, within = Package(), None
    for path in sorted(folder.glob("*.go")):
        if path.name.endswith("_test.go") or "generated" in path.name:
            continue
        for line in path.read_text().splitlines():
            if match := re.match(r"type (\w+) struct \{$", line):
                within = package.structs[match[1]] = []
            elif line == "}":
                within = None
            elif within is not None:
                within.append(line)
            elif match := re.match(r"\t?(?:type )?(\w+) (\S+)$", line):
                package.types.setdefault(match[1], match[2])
    return package


class Tables:
    def __init__(self, api: Path, machinery: Path) -> None:
        self._api, self._machinery = api, machinery
        self._packages: dict[str, Package] = {}
        self.messages: dict[str, list[str]] = {}

    def package(self, name: str) -> Package:
        if name not in self._packages:
            base = self._machinery / "pkg" / "apis" if name == META else self._api
            self._packages[name] = parse(base / name)
        return self._packages[name]

    def add(self, package: str, name: str) -> str:
        full = f"{package}.{name}"
        if full not in self.messages:
            self.messages[full] = []  # first: messages may hold themselves
            for line in self.package(package).structs[name]:
                if match := FIELD.match(line):
                    self.messages[full].append(self.field(package, match))
        return full

    def field(self, package: str, match: re.Match[str]) -> str:
        go, json, options, number = match[2], match[3], match[4], match[6]
        flags = "*" if go.startswith("*") else ""
        if not json:
            flags += "^"
        elif "omitempty" not in options:
            flags += "!"
        return f"{number} {json or '-'} {self.form(package, go.lstrip('*'))} {flags or '-'}"

    def form(self, package: str, go: str) -> str:
        if go in SPECIAL:
            return SPECIAL[go]
        if go in PLAIN:
            return PLAIN[go]
        if go.startswith("[]"):
            return f"list:{self.form(package, go[2:].lstrip('*'))}"
        if match := re.match(r"map\[[\w.]+\](.*)", go):
            listed = match[1] in ("ExtraValue", "AttestationValue")  # a message of its own
            return "map:texts" if listed else f"map:{self.form(package, match[1])}"
        place, _, name = go.rpartition(".")
        where = IMPORTS[place] if place else package
        if where == "types":
            return "text"
        if name in self.package(where).structs:
            return self.add(where, name)
        return self.form(where, self.package(where).types[name])


def write(api: Path, machinery: Path) -> str:
    tables = Tables(api, machinery)
    kinds = []
    for folder, api_version, names in ROOTS.values():
        kinds += [f"kind {api_version} {name} {tables.add(folder, name)}" for name in names]
    lines = [
        "# Kubernetes' objects in protobuf: number, name, form, flags (* pointer, ^ inline, ! kept when empty)."
    ]
    lines += ["# Written by tests/oracle/wire_tables.py.", *kinds]
    for name, fields in sorted(tables.messages.items()):
        lines += [f"message {name}", *fields]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(write(Path(sys.argv[1]), Path(sys.argv[2])))
