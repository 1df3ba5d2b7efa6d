"""Which device is whose: the join of devices, checkpoints and what the kubelet tells."""

import dataclasses
import os
import re

import pytest

from devices.gpu import Gpu, Inventory, Roots
from devices.health import Finding, HealthReport
from plugin import exposition, metrics
from plugin.prepared import PreparedClaim, PreparedDevice
from plugin.report import device_metrics

GPU = Gpu(
    name="gpu-0000-41-00-0",
    address="0000:41:00.0",
    vendor="nvidia",
    vendor_id=0x10DE,
    device_id=0x2330,
    driver="nvidia",
    product="NVIDIA H100",
    uuid="GPU-1",
    memory=80 << 30,
)
OTHER = dataclasses.replace(
    GPU, name="gpu-0000-42-00-0", address="0000:42:00.0", uuid=None, memory=None
)
IDENTITY = ("gpu-0000-41-00-0", "GPU-1", "0000:41:00.0")


def claim(name="train", reserved=("pods/train-0 uid-1",), device=GPU, **more):
    given = PreparedDevice(
        requests=("gpus",), pool="n1", device=device.name, address=device.address, **more
    )
    return PreparedClaim(
        namespace="ml",
        name=name,
        uid=name,
        reserved_for=reserved,
        prepared_at="2026-11-23T00:00:00Z",
        devices=(given,),
    )


@pytest.fixture
def made(tmp_path):
    """Device metrics of two GPUs; claims and containers are put into the two dicts."""
    claims, containers, asked = {}, {}, []

    def ask():
        asked.append(1)
        return containers

    roots = Roots(sys=str(tmp_path), proc=str(tmp_path), dev=str(tmp_path))
    inventory = Inventory(gpus=(GPU, OTHER))
    made = device_metrics.DeviceMetrics(
        "n1", roots, lambda: inventory, HealthReport, lambda: claims, ask
    )
    made.claims_given, made.containers_given, made.asked = claims, containers, asked
    return made


def uses(made):
    """Of the first GPU: namespace, pod, container, claim, share."""
    return [labels[6:] for labels, _ in made.info() if labels[1] == GPU.name]


def test_a_note_is_no_sickness_and_what_has_vanished_is_sick(made):
    def found(severity):
        return (Finding(kind="k", severity=severity, sentence="It is so.", since=0),)

    gone = dataclasses.replace(OTHER, name="gpu-0000-43-00-0", address="0000:43:00.0")
    findings = (
        (GPU.name, found("note")),
        (OTHER.name, found("degraded")),
        (gone.name, found("failed")),
    )
    made._report = lambda: HealthReport(retained=(gone,), findings=findings)
    assert {labels[0]: value for labels, value in made.healthy()} == {
        GPU.name: 1,
        OTHER.name: 0,
        gone.name: 0,
    }


def test_who_only_looks_has_nothing(made):
    made.claims_given["train"] = claim(admin=True)
    assert uses(made) == [("", "", "", "", "")]


def test_devices_that_nobody_has(made):
    (first, one), (second, _) = made.info()
    assert first == ("n1", *IDENTITY, "nvidia", "NVIDIA H100", "", "", "", "", "")
    assert one == 1
    assert second[1:4] == ("gpu-0000-42-00-0", "", "0000:42:00.0")
    assert not made.asked, "a node without claims does not ask its kubelet"


def test_a_sample_for_each_container(made):
    made.claims_given["train"] = claim()
    assert uses(made) == [("ml", "train-0", "", "ml/train", "")]
    made.containers_given["ml", "train-0", "train"] = ["main", "side"]
    assert uses(made) == [
        ("ml", "train-0", "main", "ml/train", ""),
        ("ml", "train-0", "side", "ml/train", ""),
    ]


def test_the_kubelet_is_not_asked_for_each_of_many_scrapes(made):
    made.claims_given["train"] = claim()
    for _ in range(50):
        list(made.info())
    assert len(made.asked) == 1


def test_shares_and_claims_without_a_pod(made):
    made.claims_given["a"] = claim("a", ("pods/a-0 u", "pods/a-1 u"), share_id="s1")
    made.claims_given["b"] = claim("b", (), share_id="s2")
    assert uses(made) == [
        ("ml", "", "", "ml/b", "s2"),
        ("ml", "a-0", "", "ml/a", "s1"),
        ("ml", "a-1", "", "ml/a", "s1"),
    ]


def test_there_are_never_more_than_so_many(made):
    made.claims_given["a"] = claim("a", tuple(f"pods/p-{n} u" for n in range(5000)))
    assert len(list(made.info())) == device_metrics.MOST_USES


def test_every_family_is_served_as_text(made, monkeypatch):
    scraped = [metric for metric in metrics.ALL if isinstance(metric, metrics.Scraped)]
    for metric in scraped:
        monkeypatch.setattr(metric, "source", metric.source)
    made.install()
    device_metrics.install_process(lambda: "v1beta1")
    text = exposition.text(metrics.ALL, exposition.PLAIN)
    assert (
        'claimd_device_healthy{device="gpu-0000-41-00-0",uuid="GPU-1",pci="0000:41:00.0"} 1' in text
    )
    assert (
        f'claimd_device_memory_bytes{{device="gpu-0000-41-00-0",uuid="GPU-1",pci="0000:41:00.0"}} {80 << 30}'
        in text
    )
    for line in text.split("\n"):
        if line.startswith("process_open_fds "):
            assert 3 <= int(line.split()[1]) <= len(os.listdir("/proc/self/fd")) + 5
    assert "process_resident_memory_bytes " in text
    assert re.search(
        r'claimd_build_info\{version="[^"]+",python="3[^"]+",api_version="v1beta1"\} 1', text
    )
