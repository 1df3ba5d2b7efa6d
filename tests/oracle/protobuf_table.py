"""Makes plugin/sim/apiserver/protobuf.json: the numbers and types of fields in Kubernetes' protobuf, from Go's sources.

    python -m tests.oracle.protobuf_table 0.37.1 [OLDER…]   (versions of k8s.io/api that Go has downloaded)

Of an older source only what the newer ones do not have is taken: kinds that are gone. A field is [name, type]. Types:
s text, i number, b truth, y bytes, r JSON in bytes, q quantity, o number or text, t and T times, l a list of texts in a
message, or a message. In front: * list, % map of texts to these, ? kept although it is zero. No name: the fields of its
message are those of the one that it is in.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = Path.home() / "go/pkg/mod/k8s.io"
PACKAGES = {
    "meta/v1": "apimachinery@v{}/pkg/apis/meta/v1",
    **{
        place: f"api@v{{}}/{place}"
        for place in (
            *("core/v1", "apps/v1", "authentication/v1", "authorization/v1", "coordination/v1", "events/v1"),
            *("policy/v1", "rbac/v1", "scheduling/v1", "admissionregistration/v1"),
            *("resource/v1", "resource/v1beta2", "resource/v1beta1", "resource/v1alpha3", "resource/v1alpha2"),
        )
    },
}
GROUPS = {
    "meta/v1": "v1",
    "core/v1": "v1",
    "apps/v1": "apps/v1",
    "policy/v1": "policy/v1",
    "authentication/v1": "authentication.k8s.io/v1",
    "authorization/v1": "authorization.k8s.io/v1",
    "coordination/v1": "coordination.k8s.io/v1",
    "events/v1": "events.k8s.io/v1",
    "rbac/v1": "rbac.authorization.k8s.io/v1",
    "scheduling/v1": "scheduling.k8s.io/v1",
    "admissionregistration/v1": "admissionregistration.k8s.io/v1",
}
KINDS = {
    "meta/v1": ["DeleteOptions"],
    "core/v1": ["Binding", "ConfigMap", "Event", "Namespace", "Node", "Pod", "Secret", "Service", "ServiceAccount"],
    "apps/v1": ["DaemonSet", "Deployment", "ReplicaSet"],
    "policy/v1": ["Eviction"],
    "authentication/v1": ["SelfSubjectReview", "TokenRequest", "TokenReview"],
    "authorization/v1": [
        *("LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"),
    ],
    "coordination/v1": ["Lease"],
    "events/v1": ["Event"],
    "rbac/v1": ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
    "scheduling/v1": ["PriorityClass"],
    "admissionregistration/v1": ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
}
RESOURCE = [
    *("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass", "DeviceTaintRule", "ResourceClass"),
    *("PodSchedulingContext", "ResourceClaimParameters", "ResourceClassParameters", "ResourcePoolStatusRequest"),
]
KNOWN = {
    "metav1.Time": "t",
    "metav1.MicroTime": "T",
    "resource.Quantity": "q",
    "intstr.IntOrString": "o",
    "runtime.RawExtension": "r",
    "metav1.FieldsV1": "r",
    "types.UID": "s",
    "types.NodeName": "s",
    "string": "s",
    "bool": "b",
    "byte": "y",
    "[]byte": "y",
    "Time": "t",
    "MicroTime": "T",
    "FieldsV1": "r",
    **dict.fromkeys(("int", "int16", "int32", "int64", "uint32", "uint64"), "i"),
}
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.M | re.S)
FIELD = re.compile(r'^\t(?:(\w+)\s+)?(\*?[\w.\[\]*]+)\s+`json:"([^",]*)(,[^"]*)?"[^`]*?protobuf:"\w+,(\d+),', re.M)
NAMED = re.compile(r"^type (\w+) (\S+)$", re.M)


class Source:
    """The types of one package: structs with their fields, and names for other types."""

    def __init__(self, place, folder):
        self.place = place
        text = "\n".join(path.read_text() for path in sorted(folder.glob("*.go")) if "generated" not in path.name)
        self.structs = {name: FIELD.findall(body) for name, body in STRUCT.findall(text)}
        self.named = {name: of for name, of in NAMED.findall(text) if of != "struct"}


def table(version):
    """Kinds by apiVersion/kind, and the messages that they are made of."""
    folders = {place: MODULES / where.format(version) for place, where in PACKAGES.items()}
    sources = {place: Source(place, folder) for place, folder in folders.items() if folder.is_dir()}
    kinds, messages = {}, {}
    wanted = KINDS | {place: RESOURCE for place in sources if place.startswith("resource/")}

    def type_of(place, said):
        """The code of a Go type, as seen from a package."""
        if said in KNOWN:
            return KNOWN[said]
        if said.startswith("*"):
            return f"?{type_of(place, said[1:])}"
        if found := re.fullmatch(r"map\[[\w.]+\](.+)", said):
            return f"%{type_of(place, found[1])}"
        if said.startswith("[]"):
            return f"*{type_of(place, said[2:]).lstrip('?')}"
        package, _, name = said.rpartition(".")
        if package:
            place = {"metav1": "meta/v1", "v1": "core/v1", "apiv1": "core/v1"}.get(
                package
            ) or f"{package.replace('v1', '')}/v1"
        named = sources[place].named.get(name)
        if named:
            of = type_of(place, named)
            return "l" if of == "*s" else of
        message = f"{place}.{name}"
        if message not in messages:
            messages[message] = {}
            for _, field, wire, options, number in sources[place].structs[name]:
                inline = "inline" in options
                messages[message][number] = ["" if inline and not wire else wire, type_of(place, field)]
        return message

    for place, names in wanted.items():
        for name in names:
            if place in sources and name in sources[place].structs:
                api_version = GROUPS.get(place) or place.replace("resource/", "resource.k8s.io/")
                kinds[f"{api_version}/{name}"] = type_of(place, name)
    return kinds, messages


def main():
    kinds, messages = {}, {}
    for version in sys.argv[1:]:
        more, parts = table(version)
        kinds, messages = more | kinds, parts | messages
    lines = [f"{json.dumps(name)}: {json.dumps(messages[name])}" for name in sorted(messages)]
    text = (
        '{\n"kinds": '
        + json.dumps(dict(sorted(kinds.items())), indent=0)
        + ',\n"messages": {\n'
        + ",\n".join(lines)
        + "\n}\n}\n"
    )
    json.loads(text)
    (ROOT / "plugin/sim/apiserver/protobuf.json").write_text(text)
    print(f"{len(kinds)} kinds, {len(messages)} messages, {len(text)} bytes")


if __name__ == "__main__":
    main()
