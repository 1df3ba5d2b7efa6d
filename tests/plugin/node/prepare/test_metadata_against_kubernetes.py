"""Files of device metadata as Kubernetes' own reader takes them, of every fake model and machine.

And as KubeVirt's reader does, whose rules are written out here: its module cannot be had by itself.
What it makes of the files was seen once with its own code, at commit d923fdb of kubevirt/kubevirt.
"""

import json
from pathlib import Path

import msgspec
import pytest

from claimd.kubernetes.api.resource import STANDARD, ResourceClaim
from claimd.node.prepare import metadata, plan
from claimd.node.publish import sharing
from claimd_devices import fake, scan
from claimd_devices.gpu import Roots
from tests.support import oracle
from tests.support.worlds import DRIVER, NODE, claim_object, result

RULES = sharing.parse(["*=memory", "parts=shares:2"])
ALONE, SHARE, ADMIN = "alone", "share", "admin"


@pytest.fixture(scope="module")
def kubernetes():
    if reason := oracle.missing("metadata"):
        pytest.skip(reason)
    with oracle.Oracle("metadata") as running:
        yield running


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """The devices of all models, in one tree, and of each machine by itself."""
    documents = []
    for number, words in enumerate([fake.MODELS, *([name] for name in fake.MACHINES)]):
        root = tmp_path_factory.mktemp("machine") / str(number)
        fake.write(root, fake.parse(list(words)))
        documents.append(scan.scan(Roots.in_folder(root)))
    return documents


def plan_claim(device, how, known, template):
    more = {
        ALONE: {},
        SHARE: {"shareID": "s1", "consumedCapacity": {"memory": "1Gi", "shares": "1"}},
        ADMIN: {"adminAccess": True},
    }
    claim = claim_object("c", result(device, "gpu/large", **more[how]))
    if template:
        annotation = {"resource.kubernetes.io/pod-claim-name": "in-the-pod"}
        claim["metadata"]["annotations"] = annotation
    return plan.plan(
        msgspec.convert(claim, ResourceClaim),
        driver=DRIVER,
        pool=NODE,
        inventory=known,
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )


def files(machines, folder):
    """Each device's file, by how a claim has it, and where a container would find it."""
    folder_ = metadata.MetadataFolder(folder, DRIVER, metadata.Published(sharing_rules=RULES))
    for known in machines:
        for gpu in known.gpus:
            for how in (ALONE, SHARE, ADMIN) if known == machines[0] else (ALONE,):
                if gpu.kind == "divided" and how != ADMIN:
                    continue
                given = plan_claim(gpu.name, how, known, template=how == SHARE)
                folder_.ensure(given, known)
                mount = folder_.mounts(given)["gpu"]
                yield gpu, how, Path(mount.source).read_text(), mount.target


@pytest.mark.slow
def test_kubernetes_reads_the_metadata_of_every_fake_machine(kubernetes, machines, tmp_path):
    count = 0
    for gpu, how, text, target in files(machines, tmp_path):
        pod = "in-the-pod" if how == SHARE else ""
        question = {"text": text, "driver": DRIVER, "claim": "c", "pod": pod, "request": "gpu"}
        told = kubernetes.ask(question)
        assert told["errors"] == {}, (gpu, text)
        assert (told["from"], told["path"]) == ("v1beta1", target)
        assert told["decoded"] == json.loads(text.splitlines()[0]), "nothing was passed over"
        count += 1
    assert count > 2 * len(fake.MODELS) + len(fake.MACHINES)


def test_kubernetes_refuses_what_is_no_metadata(kubernetes, machines, tmp_path):
    """The oracle can say no."""
    _, _, text, _ = next(files(machines, tmp_path))
    question = {"driver": DRIVER, "claim": "c", "pod": "", "request": "gpu"}
    wrong = {
        "cut short": text[:100],
        "a pool that is none": text.replace('"node-1"', '"Node 1"'),
        "an unknown version": text.splitlines()[0].replace("v1beta1", "v9"),
        "a name that is none": text.replace('"name":"gpu-', '"name":"GPU_'),
    }
    for what, said in wrong.items():
        assert said != text
        assert kubernetes.ask({**question, "text": said})["errors"], what


def test_a_reader_that_knows_only_the_older_version_finds_it(kubernetes, machines, tmp_path):
    """The newest one it passes over, as one that it has never heard of."""
    _, _, text, _ = next(files(machines, tmp_path))
    question = {"driver": DRIVER, "claim": "c", "pod": "", "request": "gpu"}
    told = kubernetes.ask({**question, "text": text.replace("v1beta1", "v2")})
    assert (told["errors"], told["from"]) == ({}, "v1alpha1")


def pci_address_by_kubevirt(text, request):
    """KubeVirt's rules: v1alpha1 alone, the request by its full name, exactly one device."""
    for line in text.splitlines():
        document = json.loads(line)
        if document["apiVersion"] != "metadata.resource.k8s.io/v1alpha1":
            continue
        (devices,) = (each["devices"] for each in document["requests"] if each["name"] == request)
        (device,) = devices
        return device["attributes"][f"{STANDARD}pciBusID"]["string"]
    raise AssertionError("no version that KubeVirt knows")


def test_kubevirt_finds_the_pci_address_of_every_device(machines, tmp_path):
    for gpu, _, text, _ in files(machines, tmp_path):
        assert pci_address_by_kubevirt(text, "gpu/large") == gpu.address
