"""Line 15: the rights of one node's token on real API servers of several releases.

The cases are those of tests/test_rights.py, with the manifests under the shipped names and under
others. These tests start their own control planes. `python -m tests.cluster --matrix` runs them.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import test_rights as cases
from tests.cluster.conftest import Rig
from tests.cluster.rig import daemons, places

# The newest release, and releases that do not distinguish reports from allocations themselves.
RELEASES = ("1.34.4", "1.35.1", "1.36.4", places.KUBE)


class RealCluster(cases.Cluster):
    """A cluster whose requests go over TLS, and whose administrator has a certificate."""

    def __init__(self, kubeconfig: Path, folder: Path, namespace: str, account: str) -> None:
        super().__init__(None, namespace, account)
        document = yaml.safe_load(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        user = document["users"][0]["user"]
        self.server = urllib.parse.urlparse(cluster["server"])
        authority = _file(cluster, "certificate-authority", folder)
        self.anonymous = ssl.create_default_context(cafile=authority)
        self.administrator = ssl.create_default_context(cafile=authority)
        self.administrator.load_cert_chain(
            _file(user, "client-certificate", folder), _file(user, "client-key", folder)
        )

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        admin: bool = False,
    ) -> tuple[int, Any]:
        def request() -> tuple[int, Any]:
            connection = http.client.HTTPSConnection(
                str(self.server.hostname),
                self.server.port or 443,
                context=self.administrator if admin else self.anonymous,
                timeout=20,
            )
            sent = {"Content-Type": "application/json"} | (headers or {})
            if not admin:
                sent["Authorization"] = f"Bearer {self.token}"
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            text = answer.read()
            connection.close()
            # What is no document is an answer, too: its status says whether it was let through.
            is_document = text.lstrip()[:1] == b"{"
            return answer.status, json.loads(text) if is_document else {"message": repr(text)}

        return await asyncio.to_thread(request)

    async def admin(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        status, document = await self.ask(method, path, body, headers, admin=True)
        made_before = method == "POST" and status == 409
        assert status < 300 or made_before, document
        return document

    async def clean_up(self) -> None:
        """Deletes what the last test left, and the manifests, which each test applies again."""
        for item in (await self.admin("GET", cases.SLICES))["items"]:
            await self.admin("DELETE", f"{cases.SLICES}/{item['metadata']['name']}")
        await self.admin("DELETE", cases.EVENTS)

        free = {"status": {"reservedFor": None, "allocation": None}}
        for item in (await self.admin("GET", cases.CLAIMS))["items"]:
            path = f"{cases.CLAIMS}/{item['metadata']['name']}"
            await self.ask("PATCH", f"{path}/status", free, cases.MERGE, admin=True)
            await self.ask("DELETE", path, admin=True)
            finalizers = {"metadata": {"finalizers": None}}
            await self.ask("PATCH", path, finalizers, cases.MERGE, admin=True)

        for kind, collection in cases.COLLECTIONS.items():
            if kind not in ("Namespace", "ServiceAccount"):
                for item in (await self.admin("GET", collection))["items"]:
                    if "claimd" in item["metadata"]["name"]:
                        await self.admin("DELETE", f"{collection}/{item['metadata']['name']}")

    async def policies_work(self) -> None:
        """Waits until the API server evaluates new policies, which takes a moment."""
        async with asyncio.timeout(30):
            stranger = cases.slice_of(node="n2")
            path = f"{cases.SLICES}?dryRun=All"
            while (await self.ask("POST", path, stranger))[0] != 422:
                await asyncio.sleep(0.2)
            # The API server finds both policies at once, but compiles one after the other.
            await asyncio.sleep(1)


def _file(document: dict[str, str], key: str, folder: Path) -> str:
    if key in document:
        return document[key]
    path = folder / key
    path.write_bytes(base64.b64decode(document[f"{key}-data"]))
    return str(path)


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> Iterator[str]:
    if daemons.pid_of("apiserver"):
        pytest.skip("a cluster of the rig is up; these tests start API servers of their own")
    rig = Rig()
    rig("up", "--api-server-only", "--kube", request.param)
    yield request.param
    rig("down")


@pytest.fixture(params=[("claimd-system", "claimd"), ("gpus", "team-claimd")])
async def cluster(
    request: pytest.FixtureRequest, release: str, tmp_path: Path
) -> AsyncIterator[RealCluster]:
    real_cluster = RealCluster(places.STATE / "admin.kubeconfig", tmp_path, *request.param)
    await real_cluster.clean_up()
    await real_cluster.set_up()
    await real_cluster.policies_work()
    yield real_cluster


test_every_verb_on_every_kind_of_object = cases.test_every_verb_on_every_kind_of_object
test_in_a_vendors_place_the_token_serves_that_driver_alone = (
    cases.test_in_a_vendors_place_the_token_serves_that_driver_alone
)
test_slices_of_others_are_refused = cases.test_slices_of_others_are_refused
test_its_own_slices_are_its_own = cases.test_its_own_slices_are_its_own
test_a_token_without_a_node_writes_nothing = cases.test_a_token_without_a_node_writes_nothing
test_administrators_are_not_held = cases.test_administrators_are_not_held
test_a_report_of_its_own_devices = cases.test_a_report_of_its_own_devices
test_reports_of_other_nodes_and_drivers_are_refused = (
    cases.test_reports_of_other_nodes_and_drivers_are_refused
)
test_nothing_else_of_a_claim_can_be_changed = cases.test_nothing_else_of_a_claim_can_be_changed
test_no_slice_moves_to_another_node_or_pool = cases.test_no_slice_moves_to_another_node_or_pool
test_slices_are_not_deleted_together = cases.test_slices_are_not_deleted_together
test_any_claim_is_read_by_its_name_and_none_is_listed = (
    cases.test_any_claim_is_read_by_its_name_and_none_is_listed
)
test_events_can_be_made_about_others_and_no_event_is_read_or_changed = (
    cases.test_events_can_be_made_about_others_and_no_event_is_read_or_changed
)
test_the_status_of_another_node_s_claim_stays = cases.test_the_status_of_another_node_s_claim_stays
