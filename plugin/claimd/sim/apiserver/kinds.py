"""The tables of a release: the kinds that are served, their versions, and their storage versions.

The tables have the kinds of the resource API, and other kinds that some part of the simulation
uses. For releases that a whole cluster can simulate, they also have all other kinds of k8s.io/api,
which are only stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from claimd.kubernetes.api.document import Document

from .types import definition_type
from .types.kind import Kind
from .types.resource import DEFINITIONS, DEFINITIONS_GROUP, GroupResource

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
DRA = "resource.k8s.io"
# The stages of a version, the least stable one first.
STAGES = ("alpha", "beta", None)


@dataclass(frozen=True)
class ApiResource:
    """A resource in the form that discovery lists."""

    # The stored kind.
    kind: Kind
    # The served versions, the preferred one first.
    versions: tuple[str, ...]
    singular: str
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    # The group that serves the resource.
    group: str = ""
    # The subresources other than the status.
    subresources: tuple[str, ...] = ()
    # The release, for a kind of the resource API.
    release: str = ""
    categories: tuple[str, ...] = ()
    # The fields below are those of a CustomResourceDefinition.
    list_kind: str = ""
    columns: tuple[Document, ...] = ()
    # The fields that field selectors may use.
    selectable: tuple[str, ...] = ()
    # The warning of a deprecated version.
    warning: str = ""
    # The definition is being deleted, so objects cannot be created.
    is_ending: bool = False
    # A key that changes with the definition.
    revision: str = ""


# The kinds of the category `all`, for `kubectl get all`.
IN_ALL = {
    "Pod",
    "Service",
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "ReplicaSet",
    "StatefulSet",
}

# The kinds of v1 by group: plural, kind, flags (n: namespaced, s: with a status, g: counts
# generations), and short name.
OTHER_KINDS: dict[str, tuple[str, ...]] = {
    "": (
        "configmaps ConfigMap n cm",
        "events Event n ev",
        "namespaces Namespace s ns",
        "nodes Node s no",
        "pods Pod nsg po",
        "secrets Secret n -",
        "serviceaccounts ServiceAccount n sa",
        "services Service ns svc",
    ),
    "admissionregistration.k8s.io": (
        "validatingadmissionpolicies ValidatingAdmissionPolicy sg -",
        "validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding g -",
    ),
    DEFINITIONS_GROUP: ("customresourcedefinitions CustomResourceDefinition sg crd,crds",),
    "apps": (
        "controllerrevisions ControllerRevision n -",
        "daemonsets DaemonSet nsg ds",
        "deployments Deployment nsg deploy",
        "replicasets ReplicaSet nsg rs",
        "statefulsets StatefulSet nsg sts",
    ),
    "batch": ("cronjobs CronJob nsg cj", "jobs Job nsg -"),
    "coordination.k8s.io": ("leases Lease n -",),
    "events.k8s.io": ("events Event n ev",),
    "rbac.authorization.k8s.io": (
        "clusterrolebindings ClusterRoleBinding - -",
        "clusterroles ClusterRole - -",
        "rolebindings RoleBinding n -",
        "roles Role n -",
    ),
    "scheduling.k8s.io": ("priorityclasses PriorityClass g pc",),
}
# The other kinds of k8s.io/api, which a cluster serves by default, and those of pod groups. They are
# stored and watched, and their fields are checked. The key is the release that adds them. A row is
# as above, and may have a version other than v1 at its end.
KEPT_KINDS: dict[str, dict[str, tuple[str, ...]]] = {
    "1.34": {
        "": (
            "endpoints Endpoints n ep",
            "limitranges LimitRange n limits",
            "persistentvolumeclaims PersistentVolumeClaim ns pvc",
            "persistentvolumes PersistentVolume s pv",
            "podtemplates PodTemplate ng -",
            "replicationcontrollers ReplicationController nsg rc",
            "resourcequotas ResourceQuota ns quota",
        ),
        "admissionregistration.k8s.io": (
            "mutatingwebhookconfigurations MutatingWebhookConfiguration g -",
            "validatingwebhookconfigurations ValidatingWebhookConfiguration g -",
        ),
        "autoscaling": ("horizontalpodautoscalers HorizontalPodAutoscaler nsg hpa v2",),
        "certificates.k8s.io": ("certificatesigningrequests CertificateSigningRequest s csr",),
        "discovery.k8s.io": ("endpointslices EndpointSlice ng -",),
        "flowcontrol.apiserver.k8s.io": (
            "flowschemas FlowSchema sg -",
            "prioritylevelconfigurations PriorityLevelConfiguration sg -",
        ),
        "networking.k8s.io": (
            "ingressclasses IngressClass g -",
            "ingresses Ingress nsg ing",
            "ipaddresses IPAddress - ip",
            "networkpolicies NetworkPolicy ng netpol",
            "servicecidrs ServiceCIDR s -",
        ),
        "node.k8s.io": ("runtimeclasses RuntimeClass - -",),
        "policy": ("poddisruptionbudgets PodDisruptionBudget nsg pdb",),
        "storage.k8s.io": (
            "csidrivers CSIDriver - -",
            "csinodes CSINode - -",
            "csistoragecapacities CSIStorageCapacity n -",
            "storageclasses StorageClass - sc",
            "volumeattachments VolumeAttachment s -",
            "volumeattributesclasses VolumeAttributesClass - vac",
        ),
    },
    "1.36": {
        "admissionregistration.k8s.io": (
            "mutatingadmissionpolicies MutatingAdmissionPolicy g -",
            "mutatingadmissionpolicybindings MutatingAdmissionPolicyBinding g -",
        ),
    },
    "1.37": {
        "certificates.k8s.io": (
            "clustertrustbundles ClusterTrustBundle - -",
            "podcertificaterequests PodCertificateRequest ns -",
        ),
        "scheduling.k8s.io": (
            "podgroups PodGroup ns - v1beta1",
            "workloads Workload n - v1beta1",
        ),
        "storage.k8s.io": ("csinodes CSINode s -",),
        "storagemigration.k8s.io": ("storageversionmigrations StorageVersionMigration s -",),
    },
}
# Those of KEPT_KINDS that the simulated scheduler and controllers use.
_USED = frozenset([("scheduling.k8s.io/v1beta1", "PodGroup")])
SUBRESOURCES = {
    "deployments": ("scale",),
    "replicasets": ("scale",),
    "statefulsets": ("scale",),
    "namespaces": ("finalize",),
    "pods": ("attach", "binding", "eviction", "exec", "log", "portforward"),
    "serviceaccounts": ("token",),
}

# Plural, kind and flags as above, and the versions that serve it; the first is the storage version.
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
    "1.35": dict.fromkeys((CLAIMS, TEMPLATES, CLASSES, SLICES), "v1 v1beta2 v1beta1")
    | {RULES: "v1alpha3"},
    "1.36": dict.fromkeys((CLAIMS, TEMPLATES, CLASSES, SLICES), "v1 v1beta2 v1beta1")
    | {RULES: "v1beta2 v1alpha3", POOLS: "v1alpha3"},
    "1.37": dict.fromkeys((CLAIMS, TEMPLATES, CLASSES, SLICES), "v1 v1beta2 v1beta1")
    | {RULES: "v1 v1beta2 v1alpha3", POOLS: "v1alpha3"},
    "1.38": dict.fromkeys((CLAIMS, TEMPLATES, CLASSES, SLICES), "v1 v1beta2")
    | {RULES: "v1 v1beta2 v1alpha3", POOLS: "v1alpha3"},
}
# The newest release that is out.
NEWEST = "1.37"

# The releases that deprecate and remove a version, by kind and version.
DEPRECATED = {("DeviceTaintRule", "v1alpha3"): ("1.36", "1.39")}
for _words in (CLAIMS, TEMPLATES, CLASSES, SLICES):
    DEPRECATED[_words.split()[1], "v1beta1"] = ("1.35", "1.38")
    DEPRECATED[_words.split()[1], "v1beta2"] = ("1.36", "1.39")

# Resources that can be created but are never stored: the kind, and whether it has a namespace.
REVIEWS = {
    ("authentication.k8s.io", "selfsubjectreviews"): ("SelfSubjectReview", False),
    ("authentication.k8s.io", "tokenreviews"): ("TokenReview", False),
    ("authorization.k8s.io", "localsubjectaccessreviews"): ("LocalSubjectAccessReview", True),
    ("authorization.k8s.io", "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", False),
    ("authorization.k8s.io", "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", False),
    ("authorization.k8s.io", "subjectaccessreviews"): ("SubjectAccessReview", False),
}


def api_resources(release: str) -> list[ApiResource]:
    """Returns all resources that a server of this release serves.

    Raises ValueError for a release that is not in the table.
    """
    if release not in RELEASES:
        raise ValueError(f"release {release!r}: expected one of {', '.join(RELEASES)}")
    resources = [_around(group, row) for (group, _), row in _rows(release).items()]

    for words, versions in RELEASES[release].items():
        plural, kind, flags = words.split()
        api_resource = _api_resource(DRA, plural, kind, flags, tuple(versions.split()))
        resources.append(replace(api_resource, release=release))
    return resources


def _rows(release: str) -> dict[tuple[str, str], str]:
    """Returns the rows of the tables by group and plural. The row of a later release wins."""
    tables, releases = [OTHER_KINDS], list(RELEASES)
    for since, table in KEPT_KINDS.items():
        if releases.index(since) <= releases.index(release):
            tables.append(table)

    rows: dict[tuple[str, str], str] = {}
    for table in tables:
        for group, of_group in table.items():
            rows |= {(group, row.split()[0]): row for row in of_group}
    return rows


def is_kept(api_version: str, kind: str) -> bool:
    """Returns True if objects of the kind are only stored and no part of claimd uses them."""
    return (api_version, kind) in _KEPT


def _around(group: str, row: str) -> ApiResource:
    plural, kind, flags, short_name, *version = row.split()
    api_resource = _api_resource(group, plural, kind, flags, tuple(version) or ("v1",))
    if short_name == "-":
        return api_resource
    return replace(api_resource, short_names=tuple(short_name.split(",")))


def _api_resource(
    group: str, plural: str, kind: str, flags: str, versions: tuple[str, ...]
) -> ApiResource:
    # The Events of both groups are one collection.
    storage_group = "" if kind == "Event" else group
    stored = Kind(
        GroupResource(plural, storage_group, kind),
        versions[0],
        namespaced="n" in flags,
        has_status="s" in flags,
        has_generation="g" in flags,
        structures={"v1": definition_type.definition()} if plural == DEFINITIONS.plural else {},
    )

    # Namespaces must be deleted one by one.
    verbs: tuple[str, ...] = ALL_VERBS
    if kind == "Namespace":
        verbs = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
    return ApiResource(
        stored,
        versions,
        kind.lower(),
        verbs=verbs,
        group=group,
        subresources=SUBRESOURCES.get(plural, ()),
        categories=("all",) if kind in IN_ALL else (),
        list_kind=f"{kind}List",
    )


def kept_names() -> Iterator[tuple[str, str]]:
    """Yields the API version and kind of each kind that is only stored."""
    for rows_by_group in KEPT_KINDS.values():
        for group, rows in rows_by_group.items():
            for row in rows:
                kind = _around(group, row).kind
                name = kind.api_version, kind.resource.kind
                if name not in _USED:
                    yield name


_KEPT = frozenset(kept_names())


def priority(version: str) -> tuple[int, list[int]]:
    """Returns the sort key of a version. The preferred version has the highest key.

    v2 comes before v1, v1 before v1beta2, and v1beta2 before v1alpha3. Other names come last.
    """
    parts = re.fullmatch(r"v\d+(?:(alpha|beta)\d+)?", version)
    if not parts:
        return -1, [-ord(letter) for letter in version]
    numbers = [int(digits) for digits in re.findall(r"\d+", version)]
    return STAGES.index(parts[1]), numbers
