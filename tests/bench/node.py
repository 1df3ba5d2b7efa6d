"""What the API server holds for one driver's turn: a node, its slices, and claims that are
allocated by hand.

No scheduler and no pod has a part: the allocation is written here, so that only the driver's work
is measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from .api import RESOURCES, Api, Object

NAMESPACE = "default"
CLAIMS = f"{RESOURCES}/namespaces/{NAMESPACE}/resourceclaims"
GONE, CONFLICT = 404, 409

Place = tuple[str, str]  # pool, device


class Node:
    def __init__(self, api: Api, name: str) -> None:
        self._api, self.name = api, name
        self._claims: dict[str, Object] = {}

    def create(self) -> None:
        self._api(
            "POST",
            "/api/v1/nodes",
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}},
        )

    def delete(self) -> None:
        """The node and whatever the turn has left."""
        self.remove(list(self._claims.values()))
        self.delete_slices(self.slices())
        self._api("DELETE", f"/api/v1/nodes/{self.name}", but=(GONE,))

    def slices(self, driver: str = "") -> list[Object]:
        """Of one driver, or of all."""
        slices_ = self._api(
            "GET", f"{RESOURCES}/resourceslices?fieldSelector=spec.nodeName%3D{self.name}"
        )["items"]
        return [item for item in slices_ if driver in ("", item["spec"]["driver"])]

    def delete_slices(self, slices: Sequence[Object]) -> None:
        for item in slices:
            self._api(
                "DELETE", f"{RESOURCES}/resourceslices/{item['metadata']['name']}", but=(GONE,)
            )

    def claim(self, name: str, driver: str, place: Place) -> Object:
        """A claim that is allocated to this device of the node and reserved for a pod, as one that
        was made of a template for it.
        """
        pool, device = place
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        requests = [{"name": "gpu", "exactly": {"deviceClassName": "claimd-bench"}}]
        stored = self._api(
            "POST",
            CLAIMS,
            head
            | {
                "metadata": {
                    "name": name,
                    "namespace": NAMESPACE,
                    "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
                },
                "spec": {"devices": {"requests": requests}},
            },
        )
        self._claims[name] = stored
        here = {"key": "metadata.name", "operator": "In", "values": [self.name]}
        result = {"request": "gpu", "driver": driver, "pool": pool, "device": device}
        stored["status"] = {
            "allocation": {
                "devices": {"results": [result]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
            },
            "reservedFor": [{"resource": "pods", "name": f"pod-{name}", "uid": f"uid-{name}"}],
        }
        stored = self._api("PUT", f"{CLAIMS}/{name}/status", head | stored)
        self._claims[name] = stored
        return stored

    def is_reported(self, claim: Object) -> bool:
        """Whether the driver has put the allocated device into the claim's status."""
        (wanted,) = claim["status"]["allocation"]["devices"]["results"]
        status = self._api("GET", f"{CLAIMS}/{claim['metadata']['name']}").get("status", {})
        keys = ("driver", "pool", "device")
        return any(
            all(entry[key] == wanted[key] for key in keys) for entry in status.get("devices", [])
        )

    def remove(self, claims: Sequence[Object]) -> None:
        """As a cluster does it after unprepare: deallocated, then deleted."""
        for claim in claims:
            name = claim["metadata"]["name"]
            fresh = self._api("GET", f"{CLAIMS}/{name}", but=(GONE,))
            if fresh["kind"] == "ResourceClaim":
                # A driver may be writing the status at the same moment; the claim goes either way.
                self._api(
                    "PUT", f"{CLAIMS}/{name}/status", {**fresh, "status": {}}, but=(GONE, CONFLICT)
                )
                self._api("DELETE", f"{CLAIMS}/{name}", but=(GONE,))
            self._claims.pop(name, None)
