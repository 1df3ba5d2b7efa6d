"""Which device is whose: the join of devices, checkpoints and what the kubelet tells."""

import dataclasses
import os
import re

import msgspec
import pytest

from claimd.common import metrics, names
from claimd.node.endpoint import exposition
from claimd.node.prepared import PreparedClaim, PreparedDevice
from claimd.node.report import device_metrics
from claimd_devices import telemetry
from claimd_devices.gpu import Gpu, Inventory, Roots
from claimd_devices.health import Finding, HealthReport

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


class PlayedMonitor:
    """A monitor with a report that a test sets."""

    last = HealthReport()

    def event_counts(self):
        return [(GPU, "xid", "31", 3)]


@pytest.fixture
def device_metrics_(tmp_path):
    """Device metrics of two GPUs; claims and users are put into the two dicts."""
    claims, users, asked = {}, {}, []

    def ask():
        asked.append(1)
        return users

    roots = Roots(sys=str(tmp_path), proc=str(tmp_path), dev=str(tmp_path))
    inventory = Inventory(gpus=(GPU, OTHER))
    device_metrics_ = device_metrics.DeviceMetrics(
        "n1",
        lambda: inventory,
        PlayedMonitor(),
        lambda: claims,
        ask,
        lambda inventory: telemetry.readings(roots, inventory.gpus),
    )
    device_metrics_.claims_given, device_metrics_.users_given, device_metrics_.asked = (
        claims,
        users,
        asked,
    )
    return device_metrics_


def uses(device_metrics_):
    """Of the first GPU: namespace, pod, container, claim, share."""
    return [labels[6:] for labels, _ in device_metrics_.info() if labels[1] == GPU.name]


def test_a_note_is_no_sickness_and_what_has_vanished_is_sick(device_metrics_):
    def with_severity(severity):
        return (Finding(kind="k", severity=severity, sentence="It is so.", since=0),)

    gone = dataclasses.replace(OTHER, name="gpu-0000-43-00-0", address="0000:43:00.0")
    findings = (
        (GPU.name, with_severity("note")),
        (OTHER.name, with_severity("degraded")),
        (gone.name, with_severity("failed")),
    )
    device_metrics_._monitor.last = HealthReport(retained=(gone,), findings=findings)
    assert {labels[0]: value for labels, value in device_metrics_.healthy()} == {
        GPU.name: 1,
        OTHER.name: 0,
        gone.name: 0,
    }


def test_who_only_looks_has_nothing(device_metrics_):
    device_metrics_.claims_given["train"] = claim(admin=True)
    assert uses(device_metrics_) == [("", "", "", "", "")]


def test_devices_that_nobody_has(device_metrics_):
    (first, claims), (second, _) = device_metrics_.info()
    assert first == ("n1", *IDENTITY, "nvidia", "NVIDIA H100", "", "", "", "", "")
    assert claims == 1
    assert second[1:4] == ("gpu-0000-42-00-0", "", "0000:42:00.0")
    assert not device_metrics_.asked, "a node without claims does not ask its kubelet"


def test_a_sample_for_each_container(device_metrics_):
    device_metrics_.claims_given["train"] = claim()
    assert uses(device_metrics_) == [("ml", "train-0", "", "train", "")]
    id_ = names.cdi_id("train", GPU.name, None)
    device_metrics_.users_given["ml", "train"] = {
        "train-0": {"main": {id_}, "side": {id_}, "other": set()},
        "of-another-claim-of-this-name": {"main": {"claimd.dev/claim=older"}},
    }
    device_metrics_._asked_at = -1000.0
    assert uses(device_metrics_) == [
        ("ml", "train-0", "main", "train", ""),
        ("ml", "train-0", "side", "train", ""),
    ]


def test_a_claim_that_a_group_of_pods_has(device_metrics_):
    device_metrics_.claims_given["train"] = claim(reserved=("podgroups/g u", "pods/train-0 u"))
    id_ = names.cdi_id("train", GPU.name, None)
    device_metrics_.users_given["ml", "train"] = {"train-1": {"main": {id_}}}
    assert uses(device_metrics_) == [
        ("ml", "train-0", "", "train", ""),
        ("ml", "train-1", "main", "train", ""),
    ]


def test_the_kubelet_is_not_asked_for_each_of_many_scrapes(device_metrics_):
    device_metrics_.claims_given["train"] = claim()
    for _ in range(50):
        list(device_metrics_.info())
    assert len(device_metrics_.asked) == 1


def test_the_sensors_are_read_once_for_all_families_of_a_scrape(device_metrics_):
    inventories = []

    def read(inventory):
        inventories.append(inventory)
        values = (telemetry.Reading("power", 310.5), telemetry.Reading("busy", 0.25))
        return {GPU.name: values}

    device_metrics_._read_sensors = read
    assert list(device_metrics_._of_kind("power")) == [(IDENTITY, 310.5)]
    assert list(device_metrics_._of_kind("busy")) == [(IDENTITY, 0.25)]
    assert inventories == [Inventory(gpus=(GPU, OTHER))]

    # A later scrape has values of its own.
    device_metrics_._read_at = -1000.0
    list(device_metrics_._of_kind("busy"))
    assert len(inventories) == 2


def test_shares_and_claims_without_a_pod(device_metrics_):
    device_metrics_.claims_given["a"] = claim("a", ("pods/a-0 u", "pods/a-1 u"), share_id="s1")
    device_metrics_.claims_given["b"] = claim("b", (), share_id="s2")
    assert uses(device_metrics_) == [
        ("ml", "", "", "b", "s2"),
        ("ml", "a-0", "", "a", "s1"),
        ("ml", "a-1", "", "a", "s1"),
    ]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({GPU}, {OTHER}, (["a"], ["b"])),
        ({GPU, OTHER}, {OTHER}, (["a"], ["a", "b"])),
        # As kubelets up to 1.37 answer, whatever each of the two uses.
        ({GPU, OTHER}, {GPU, OTHER}, ([""], [""])),
        ({GPU, OTHER}, None, (["a"], ["a"])),
        (set(), set(), ([""], [""])),
    ],
)
def test_a_claim_of_two_requests(device_metrics_, first, second, expected):
    """`first` and `second`: of which devices the kubelet says that the containers have them."""
    two = [
        PreparedDevice(requests=(name,), pool="n1", device=gpu.name, address=gpu.address)
        for name, gpu in (("one", GPU), ("two", OTHER))
    ]
    device_metrics_.claims_given["train"] = msgspec.structs.replace(claim(), devices=tuple(two))
    given = {}
    for name, gpus in (("a", first), ("b", second)):
        if gpus is not None:
            given[name] = {names.cdi_id("train", gpu.name, None) for gpu in gpus}
    device_metrics_.users_given["ml", "train"] = {"train-0": given}
    holders = ([], [])
    for labels, _ in device_metrics_.info():
        holders[labels[1] == OTHER.name].append(labels[8])
    assert holders == expected


def test_there_are_never_more_than_so_many_and_each_device_has_one(device_metrics_):
    device_metrics_.claims_given["a"] = claim("a", tuple(f"pods/p-{n} u" for n in range(5000)))
    samples = list(device_metrics_.info())
    assert len(samples) == device_metrics.MOST_USES
    assert [labels[1] for labels, _ in samples].count(OTHER.name) == 1
    assert list(device_metrics_.dropped_uses()) == [((), 3001)]

    device_metrics_.claims_given.clear()
    assert len(list(device_metrics_.info())) == 2
    assert list(device_metrics_.dropped_uses()) == [((), 0)]


@pytest.mark.parametrize(
    ("counts", "most", "kept"),
    [
        ([], 5, []),
        ([1, 2, 3], 6, [1, 2, 3]),
        ([1, 9, 9], 6, [1, 3, 2]),
        ([9, 2, 9], 9, [4, 2, 3]),
        ([1, 1, 1], 2, [1, 1, 1]),
        ([3, 1, 3], 2, [1, 1, 1]),
    ],
)
def test_who_has_the_most_loses_first(counts, most, kept):
    assert device_metrics._fair(counts, most) == kept


def test_every_family_is_served_as_text(device_metrics_, monkeypatch):
    scraped = [metric for metric in metrics.ALL if isinstance(metric, metrics.Scraped)]
    for metric in scraped:
        monkeypatch.setattr(metric, "source", metric.source)
    device_metrics_.install()
    device_metrics.install_process(lambda: "v1beta1")
    text = exposition.text(metrics.ALL, exposition.PLAIN)
    assert (
        'claimd_device_healthy{device="gpu-0000-41-00-0",uuid="GPU-1",pci="0000:41:00.0"} 1' in text
    )
    assert (
        'claimd_device_events_total{device="gpu-0000-41-00-0",uuid="GPU-1",pci="0000:41:00.0",'
        'kind="xid",value="31"} 3'
    ) in text
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
