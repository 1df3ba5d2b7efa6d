"""What the server of a release serves: kinds, their versions, and in which version each is kept.
Tables only.

Of the kinds around the resource API, those that drivers, schedulers and this project's own demos
touch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .types.kind import Kind
from .types.resource import GroupResource

ALL = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
DRA = "resource.k8s.io"


@dataclass(frozen=True)
class ApiResource:
    kind: Kind  # as it is kept
    versions: tuple[str, ...]  # as it is served, the preferred one first
    singular: str
    short: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL
    group: str = ""  # under which it is served
    subresources: tuple[str, ...] = ()  # beside the status
    release: str = ""


# group, version, plural, kind; n: in a namespace, s: with a status, g: counts generations; short
# name
OTHER_KINDS = """
-                            v1  configmaps                        ConfigMap                         n    cm
-                            v1  events                            Event                             n    ev
-                            v1  namespaces                        Namespace                         s    ns
-                            v1  nodes                             Node                              s    no
-                            v1  pods                              Pod                               nsg  po
-                            v1  secrets                           Secret                            n    -
-                            v1  serviceaccounts                   ServiceAccount                    n    sa
-                            v1  services                          Service                           ns   svc
admissionregistration.k8s.io v1  validatingadmissionpolicies       ValidatingAdmissionPolicy         sg   -
admissionregistration.k8s.io v1  validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding  g    -
apps                         v1  daemonsets                        DaemonSet                         nsg  ds
apps                         v1  deployments                       Deployment                        nsg  deploy
apps                         v1  replicasets                       ReplicaSet                        nsg  rs
coordination.k8s.io          v1  leases                            Lease                             n    -
events.k8s.io                v1  events                            Event                             n    ev
rbac.authorization.k8s.io    v1  clusterrolebindings               ClusterRoleBinding                -    -
rbac.authorization.k8s.io    v1  clusterroles                      ClusterRole                       -    -
rbac.authorization.k8s.io    v1  rolebindings                      RoleBinding                       n    -
rbac.authorization.k8s.io    v1  roles                             Role                              n    -
scheduling.k8s.io            v1  priorityclasses                   PriorityClass                     g    pc
"""
SUBRESOURCES = {
    "deployments": ("scale",),
    "replicasets": ("scale",),
    "namespaces": ("finalize",),
    "pods": ("binding", "eviction", "log"),
    "serviceaccounts": ("token",),
}

# plural, kind, flags as above, and the versions that serve it; the first is the one that it is kept
# in
CLAIMS = "resourceclaims ResourceClaim ns"
TEMPLATES = "resourceclaimtemplates ResourceClaimTemplate n"
CLASSES = "deviceclasses DeviceClass g"
SLICES = "resourceslices ResourceSlice g"
RULES = "devicetaintrules DeviceTaintRule sg"
SCHEDULING = "podschedulingcontexts PodSchedulingContext ns"
POOLS = "resourcepoolstatusrequests ResourcePoolStatusRequest s"
RELEASES: dict[str, dict[str, str]] = {
    "1.30": {
        CLAIMS: "v1alpha2",
        TEMPLATES: "v1alpha2",
        SCHEDULING: "v1alpha2",
        "resourceclasses ResourceClass -": "v1alpha2",
        "resourceclaimparameters ResourceClaimParameters n": "v1alpha2",
        "resourceclassparameters ResourceClassParameters n": "v1alpha2",
        "resourceslices ResourceSlice -": "v1alpha2",
    },
    "1.31": dict.fromkeys((CLAIMS, TEMPLATES, CLASSES, SLICES, SCHEDULING), "v1alpha3"),
    "1.34": dict.fromkeys((CLAIMS, TEMPLATES, CLASSES, SLICES), "v1 v1beta2 v1beta1")
    | {"devicetaintrules DeviceTaintRule g": "v1alpha3"},
    "1.37": dict.fromkeys((CLAIMS, TEMPLATES, CLASSES, SLICES), "v1 v1beta2 v1beta1")
    | {RULES: "v1 v1beta2 v1alpha3", POOLS: "v1alpha3"},
}
NEWEST = "1.37"
# release, kind, version: since when it is deprecated, and when it will be gone
DEPRECATED = {
    (NEWEST, words.split()[1], version): since
    for version, since in {"v1beta1": ("1.35", "1.38"), "v1beta2": ("1.36", "1.39")}.items()
    for words in (CLAIMS, TEMPLATES, CLASSES, SLICES)
} | {(NEWEST, "DeviceTaintRule", "v1alpha3"): ("1.36", "1.39")}


def api_resources(release: str) -> list[ApiResource]:
    """Everything that a server of this release has; ValueError for a release that is not in the
    table.
    """
    if release not in RELEASES:
        raise ValueError(f"release {release!r}: expected one of {', '.join(RELEASES)}")
    found = []
    for line in OTHER_KINDS.split("\n")[1:-1]:
        group, version, plural, kind, flags, short = line.split()
        found.append(
            _api_resource(group.strip("-"), plural, kind, flags, (version,), short.strip("-"))
        )
    for words, versions in RELEASES[release].items():
        plural, kind, flags = words.split()
        found.append(
            replace(
                _api_resource(DRA, plural, kind, flags, tuple(versions.split())), release=release
            )
        )
    return found


def _api_resource(
    group: str, plural: str, kind: str, flags: str, versions: tuple[str, ...], short: str = ""
) -> ApiResource:
    kept = Kind(
        GroupResource(
            plural, "" if kind == "Event" else group, kind
        ),  # events of both groups are one collection
        versions[0],
        namespaced="n" in flags,
        status="s" in flags,
        generation="g" in flags,
    )
    verbs = (
        tuple(verb for verb in ALL if verb != "deletecollection") if kind == "Namespace" else ALL
    )
    more = SUBRESOURCES.get(plural, ())
    return ApiResource(kept, versions, kind.lower(), (short,) if short else (), verbs, group, more)


def priority(version: str) -> tuple[int, int, int]:
    """Higher is preferred: v2 before v1 before v1beta2 before v1alpha3."""
    found = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    assert found, version
    return {"alpha": 0, "beta": 1}.get(found[2], 2), int(found[1]), int(found[3] or 0)
