"""The documents of API discovery: groups, versions and resources."""

from __future__ import annotations

import base64
import hashlib
from typing import NamedTuple

from claimd.kubernetes.api.document import Document

from .. import kinds
from ..catalog import Catalog, ServedVersion

AGGREGATED = ("v2", "v2beta1")

# The patch release that stands for each minor release.
PATCH_RELEASES = {
    "1.30": "1.30.14",
    "1.31": "1.31.14",
    "1.34": "1.34.2",
    "1.35": "1.35.4",
    "1.36": "1.36.3",
    "1.37": "1.37.1",
    "1.38": "1.38.0-beta.0",
}
# The first minor release whose /version contains the emulated version.
EMULATION_SINCE = 33


class Subresource(NamedTuple):
    """The verbs of a subresource, and the type of its object if that is not the resource itself."""

    verbs: tuple[str, ...]
    takes: tuple[str, str, str] | None = None


SUBRESOURCES = {
    "status": Subresource(("get", "patch", "update")),
    "scale": Subresource(("get", "patch", "update"), ("autoscaling", "v1", "Scale")),
    "finalize": Subresource(("update",)),
    "log": Subresource(("get",)),
    "attach": Subresource(("create", "get"), ("", "v1", "PodAttachOptions")),
    "exec": Subresource(("create", "get"), ("", "v1", "PodExecOptions")),
    "portforward": Subresource(("create", "get"), ("", "v1", "PodPortForwardOptions")),
    "binding": Subresource(("create",), ("", "v1", "Binding")),
    "eviction": Subresource(("create",), ("policy", "v1", "Eviction")),
    "token": Subresource(("create",), ("authentication.k8s.io", "v1", "TokenRequest")),
}


class Discovery:
    """The discovery documents of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @property
    def versions(self) -> dict[str, list[str]]:
        """The versions of each group, including the groups that contain only reviews."""
        versions = {group: list(served) for group, served in self._catalog.versions.items()}
        for group, _ in kinds.REVIEWS:
            versions.setdefault(group, ["v1"])
        return versions

    def version(self) -> Document:
        """Returns the document of /version."""
        release = PATCH_RELEASES[self._catalog.release]
        major, minor = release.split(".")[:2]
        # The minor number of a release that is not out yet has a plus.
        version = {"major": major, "minor": f"{minor}+" if "-" in release else minor}
        if int(minor) >= EMULATION_SINCE:
            version |= {"emulationMajor": major, "emulationMinor": minor}
        return version | {
            "gitVersion": f"v{release}",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "",
            "platform": "linux/amd64",
        }

    # ------------------------------------------------------------ documents of one group or version

    def api_versions(self, address: str) -> Document:
        """Returns the document of /api.

        `address` is where clients of any network reach the server.
        """
        servers = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": servers}

    def api_groups(self) -> Document:
        """Returns the document of /apis."""
        groups = [self.api_group(name) for name in self.versions if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def api_group(self, name: str) -> Document:
        """Returns a group with its versions, the preferred one first."""
        versions = []
        for version in self.versions[name]:
            versions.append({"groupVersion": f"{name}/{version}", "version": version})
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}

    def api_resources(self, group: str, version: str) -> Document:
        """Returns the resources of a version, sorted so that subresources follow their resource."""
        resources = []
        served_versions = self._catalog.served_versions(group, version)
        for served in served_versions:
            resources.append(_resource(served))
            resources += _subresources(served)

        if version == "v1":
            resources += _reviews(group)
        # In a group with custom resources, the subresources of a resource keep their own order.
        has_custom = any(served.kind.is_custom for served in served_versions)
        resources.sort(key=lambda resource: resource["name"].split("/")[: 1 if has_custom else 2])

        resource_list: Document = {"kind": "APIResourceList"}
        if group:
            resource_list["apiVersion"] = "v1"
        return resource_list | {
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": resources,
        }

    # ------------------------------------------------------------ aggregated discovery

    def aggregate_groups(self, core: bool, version: str) -> Document:
        """Returns all groups in one document: the core group for /api, or all others for /apis."""
        items = [self._aggregated_group(group) for group in self.versions if (group == "") == core]
        api_version = f"apidiscovery.k8s.io/{version}"
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": api_version,
            "metadata": {},
            "items": items,
        }

    def _aggregated_group(self, group: str) -> Document:
        metadata: Document = {"name": group} if group else {}
        versions = [self._aggregated_version(group, version) for version in self.versions[group]]
        return {"metadata": metadata | {"creationTimestamp": None}, "versions": versions}

    def _aggregated_version(self, group: str, version: str) -> Document:
        """Returns the resources of a version, each with its subresources inside."""
        resources: dict[str, Document] = {}
        for entry in self.api_resources(group, version)["resources"]:
            plural, _, subresource = entry["name"].partition("/")
            kind = {
                "group": entry.get("group", group),
                "version": entry.get("version", version),
                "kind": entry["kind"],
            }

            # Subresources follow their resource, so it is in the map already.
            if subresource:
                below = {"subresource": subresource, "responseKind": kind, "verbs": entry["verbs"]}
                resources[plural].setdefault("subresources", []).append(below)
                continue

            resource: Document = {
                "resource": plural,
                "responseKind": kind,
                "scope": "Namespaced" if entry["namespaced"] else "Cluster",
                "singularResource": entry["singularName"],
                "verbs": entry["verbs"],
            }
            for part in ("shortNames", "categories"):
                if part in entry:
                    resource[part] = entry[part]
            resources[plural] = resource

        return {
            "version": version,
            "resources": list(resources.values()),
            "freshness": "Current",
        }


def _resource(served: ServedVersion) -> Document:
    api_resource, kind = served.api_resource, served.kind
    resource: Document = {
        "name": kind.resource.plural,
        "singularName": api_resource.singular,
        "namespaced": kind.namespaced,
        "kind": kind.resource.kind,
        "verbs": list(api_resource.verbs),
    }
    if api_resource.short_names:
        resource["shortNames"] = list(api_resource.short_names)
    # Clients compare this hash to see whether the storage version has changed.
    if kind.is_custom:
        named = f"{kind.resource.group}/{kind.version}/{kind.resource.kind}"
        digest = hashlib.sha256(named.encode()).digest()[:8]
        resource["storageVersionHash"] = base64.b64encode(digest).decode()

    if api_resource.categories:
        resource["categories"] = list(api_resource.categories)
    return resource


def _subresources(served: ServedVersion) -> list[Document]:
    kind = served.kind
    names = list(served.api_resource.subresources)
    if kind.has_status:
        names.insert(0, "status")

    subresources = []
    for name in names:
        verbs, takes = SUBRESOURCES[name]
        subresource: Document = {
            "name": f"{kind.resource.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": takes[2] if takes else kind.resource.kind,
        }
        if takes and takes[0]:
            subresource |= {"group": takes[0], "version": takes[1]}
        subresource["verbs"] = list(verbs)
        subresources.append(subresource)
    return subresources


def _reviews(group: str) -> list[Document]:
    reviews = []
    for (review_group, plural), (kind, namespaced) in kinds.REVIEWS.items():
        if review_group == group:
            review = {"name": plural, "singularName": kind.lower(), "namespaced": namespaced}
            reviews.append(review | {"kind": kind, "verbs": ["create"]})
    return reviews
