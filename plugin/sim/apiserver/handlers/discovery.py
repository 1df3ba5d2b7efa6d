"""What a client asks before it asks for objects: groups, versions, resources, one by one and
aggregated; /version.
"""

from __future__ import annotations

from ....api.document import Document
from ..catalog import Catalog, ServedVersion

AGGREGATED = ("v2", "v2beta1")

# patch releases of whose shape we are
PATCH = {"1.30": "1.30.14", "1.31": "1.31.14", "1.34": "1.34.2", "1.37": "1.37.1"}

# Kinds that are only asked, never kept: group, plural, kind, in a namespace
REVIEWS = (
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", False),
    ("authentication.k8s.io", "tokenreviews", "TokenReview", False),
    ("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", True),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False),
    ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", False),
)
IN_ALL = {"Pod", "Service", "DaemonSet", "Deployment", "ReplicaSet"}  # what `kubectl get all` gets
OTHER_KINDS = {  # what a subresource is given, if not the object itself
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}


class Discovery:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.versions = {group: list(known) for group, known in catalog.versions.items()}
        for group, *_ in REVIEWS:
            self.versions.setdefault(group, ["v1"])

    def version(self) -> Document:
        major, minor, _ = PATCH[self._catalog.release].split(".")
        head = {"major": major, "minor": minor}
        head |= {"emulationMajor": major, "emulationMinor": minor} if int(minor) >= 33 else {}
        return head | {
            "gitVersion": f"v{PATCH[self._catalog.release]}",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "",
            "platform": "linux/amd64",
        }

    def core(self, address: str) -> Document:
        servers = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": servers}

    def groups(self) -> Document:
        listed = [self.group(name) for name in self.versions if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}

    def group(self, name: str) -> Document:
        versions = [
            {"groupVersion": f"{name}/{version}", "version": version}
            for version in self.versions[name]
        ]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}

    def resources(self, group: str, version: str) -> Document:
        """The resources of a version, with the subresources of each behind it."""
        listed: list[Document] = []
        for served in self._catalog.served_versions(group, version):
            api_resource, kind = served.api_resource, served.kind
            about = {
                "singularName": api_resource.singular,
                "namespaced": kind.namespaced,
                "kind": kind.resource.kind,
            }
            entry = {"name": kind.resource.plural} | about | {"verbs": list(api_resource.verbs)}
            entry |= {"shortNames": list(api_resource.short)} if api_resource.short else {}
            listed.append(entry | ({"categories": ["all"]} if kind.resource.kind in IN_ALL else {}))
            for name, verbs, other in _subresources(served):
                more: Document = {"name": f"{kind.resource.plural}/{name}", "singularName": ""} | {
                    "namespaced": kind.namespaced,
                    "kind": other[2] if other else kind.resource.kind,
                }
                more |= {"group": other[0], "version": other[1]} if other and other[0] else {}
                listed.append(more | {"verbs": verbs})
        for where, plural, kind_, namespaced in REVIEWS:
            if (group, version) == (where, "v1"):
                singular = {"name": plural, "singularName": kind_.lower(), "namespaced": namespaced}
                listed.append(singular | {"kind": kind_, "verbs": ["create"]})
        name = f"{group}/{version}" if group else version
        head = {
            "kind": "APIResourceList",
            "groupVersion": name,
            "resources": sorted(listed, key=lambda r: r["name"]),
        }
        return head if not group else {"kind": head.pop("kind"), "apiVersion": "v1"} | head

    def aggregated(self, core: bool, version: str) -> Document:
        """Everything in one answer: of /api with the core group alone, of /apis with the others."""
        items = [self._whole(group) for group in self.versions if (group == "") == core]
        api = f"apidiscovery.k8s.io/{version}"
        return {"kind": "APIGroupDiscoveryList", "apiVersion": api, "metadata": {}, "items": items}

    def _whole(self, group: str) -> Document:
        versions = []
        for version in self.versions[group]:
            resources = []
            found = self.resources(group, version)["resources"]
            for entry in (entry for entry in found if "/" not in entry["name"]):
                kind = {"group": group, "version": version, "kind": entry["kind"]}
                whole: Document = {"resource": entry["name"], "responseKind": kind} | {
                    "scope": "Namespaced" if entry["namespaced"] else "Cluster",
                    "singularResource": entry["singularName"],
                    "verbs": entry["verbs"],
                }
                whole |= {
                    part: entry[part] for part in ("shortNames", "categories") if part in entry
                }
                below = [self._below(entry["name"], other, group, version) for other in found]
                resources.append(
                    whole | ({"subresources": [b for b in below if b]} if any(below) else {})
                )
            versions.append({"version": version, "resources": resources, "freshness": "Current"})
        metadata = {"name": group} if group else {}
        return {"metadata": metadata | {"creationTimestamp": None}, "versions": versions}

    def _below(self, plural: str, entry: Document, group: str, version: str) -> Document | None:
        owner, _, name = entry["name"].partition("/")
        if owner != plural or not name:
            return None
        kind = {
            "group": entry.get("group", group),
            "version": entry.get("version", version),
            "kind": entry["kind"],
        }
        return {"subresource": name, "responseKind": kind, "verbs": entry["verbs"]}


def _subresources(
    served: ServedVersion,
) -> list[tuple[str, list[str], tuple[str, str, str] | None]]:
    found: list[tuple[str, list[str], tuple[str, str, str] | None]] = []
    if served.kind.status:
        found.append(("status", ["get", "patch", "update"], None))
    for name in served.api_resource.subresources:
        other = OTHER_KINDS.get(name)
        verbs = {"scale": ["get", "patch", "update"], "log": ["get"], "finalize": ["update"]}.get(
            name, ["create"]
        )
        found.append((name, verbs, other))
    return found
