"""A node with claims that were left behind: instances of the plugin's inner parts, and the files
that they keep.
"""

import asyncio
import json
import os

from claimd.common import names
from claimd.kubernetes.kube import auth, client, resources
from claimd.node.kubelet import podresources
from claimd.node.prepare import (
    cdi,
    checkpoint,
    claim_reports,
    garbage,
    gone_claims,
    lost_checkpoints,
    metadata,
)
from claimd.node.prepared import ClaimRef, PreparedClaim
from claimd.node.report import events, status
from tests.support import clock, drivers
from tests.support.worlds import DRIVER, NODE, claim_object, gpu, inventory, result

FIRST, SECOND = gpu(0).name, gpu(1).name
GRACE = 60.0  # seconds, which pass at once (`clock.leap`)


class Hardware:
    last = inventory()

    async def rescan(self):
        return self.last


class Instance:
    """One process of the plugin on the node."""

    def __init__(self, world):
        self.client = client.Client(
            auth.client_config(str(world.tmp_path / "kubeconfig"), world.tmp_path), agent="test"
        )
        resources_ = resources.Resources(self.client, DRIVER, NODE)
        self.reporter = status.StatusReporter(resources_, DRIVER)
        checkpoints = checkpoint.CheckpointFolder(world.tmp_path / "plugin", "boot-1")
        self.driver = drivers.build(
            resources_=resources_,
            checkpoints=checkpoints,
            specs=cdi.SpecFolder(world.tmp_path / "cdi", DRIVER),
            metadata_folder=metadata.MetadataFolder(
                world.tmp_path / "plugin/metadata", DRIVER, metadata.Published()
            ),
            reports=claim_reports.ClaimReports(
                driver=DRIVER,
                checkpoints=checkpoints,
                reporter=self.reporter,
                inventory=lambda: Hardware.last,
            ),
            watch=Hardware(),
        )
        self.events = events.EventRecorder(resources_, DRIVER, NODE)
        self.socket = names.pod_resources_socket(world.tmp_path)
        self.asking = None  # awaited before the kubelet is asked
        self.may_collect = True
        self.taints = {}  # the last that were set for lost or gone claims
        self.garbage = garbage.GarbageCollector(
            driver=self.driver,
            pods=self.pods,
            may_collect=lambda: self.may_collect,
            record_event=self.events.record,
            grace=GRACE,
            spacing=0.0,
        )
        self.lost = lost_checkpoints.LostCheckpoints(
            driver=self.driver,
            pods=self.pods,
            another_publishes=lambda: False,
            record_event=self.events.record,
            set_taints=self.set_taints,
        )
        self.gone = gone_claims.GoneClaims(
            driver=self.driver,
            record_event=self.events.record,
            set_taints=self.set_taints,
        )
        self.tasks = [
            asyncio.create_task(self.reporter.run()),
            asyncio.create_task(self.events.run()),
        ]

    def set_taints(self, taints):
        self.taints = taints

    async def pods(self):
        if self.asking:
            await self.asking()
        return await podresources.pods(self.socket)

    async def prepare(self, obj):
        ref = ClaimRef(*(obj["metadata"][key] for key in ("namespace", "name", "uid")))
        deadline = asyncio.get_running_loop().time() + 20
        return (await drivers.prepare(self.driver, [ref], deadline))[ref.uid]

    async def close(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.client.close()


class World:
    def __init__(self, tmp_path, api):
        self.tmp_path, self.api = tmp_path, api
        cluster = {
            "current-context": "t",
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "clusters": [{"name": "t", "cluster": {"server": api.url}}],
            "users": [{"name": "t", "user": {}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(cluster))
        self.instances = []
        self.first = self.instance()

    def instance(self):
        self.instances.append(Instance(self))
        return self.instances[-1]

    def claim(self, name="c", device=FIRST, **more):
        return self.api.put("resourceclaims", claim_object(name, result(device), **more))

    def allocate(self, *results):
        """The claim c as the scheduler leaves it."""
        return self.api.put("resourceclaims", claim_object("c", *results))

    async def prepared(self, name="c", device=FIRST):
        """A claim that was prepared."""
        obj = self.claim(name, device)
        assert isinstance(await self.first.prepare(obj), PreparedClaim)
        return obj

    def kept(self):
        """The claims of which there are a checkpoint and a CDI file; a claim with one of them alone
        fails the test.
        """
        names_ = [
            {
                entry[len(prefix) : -len(".json")]
                for entry in os.listdir(folder)
                if entry.endswith(".json")
            }
            for folder, prefix in (
                (self.tmp_path / "plugin" / "claims", ""),
                (self.tmp_path / "cdi", names.cdi_prefix(DRIVER)),
            )
        ]
        assert names_[0] == names_[1]
        return names_[0]

    def records(self):
        return [
            entry
            for entry in os.listdir(self.tmp_path / "plugin" / "claims")
            if entry.endswith(".json")
        ]

    def asked(self):
        return self.api.count("GET", "/resourceclaims/")

    async def sweep(self):
        await self.first.garbage.sweep()

    async def sweeps(self):
        """Two, the grace apart."""
        await self.sweep()
        clock.leap(GRACE)
        await self.sweep()

    def events(self):
        return [obj for (kind, _, _), obj in self.api.objects.items() if kind == "events"]
