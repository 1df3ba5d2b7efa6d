"""The whole program as a process, with a stub of NVIDIA's library in a fake tree: what it publishes
and what a scrape says.
"""

import asyncio
import re
import urllib.request

import pytest

from claimd_devices import fake
from tests.plugin.node import test_app
from tests.support import apiserver, nvml_stub

world = test_app.world  # a fixture

MEMORY = 81559 << 20  # of the stub
SAMPLE = re.compile(r'claimd_device_(\w+)\{device="([^"]+)".*\} (\S+)')


def write_tree(world, *words, **stub):
    """Writes a tree with a stub of the library. Returns its folder."""
    tree = world.tmp_path / "with-library"
    fake.write(tree, fake.parse(words))
    nvml_stub.build(nvml_stub.place_in(tree), **stub)
    return tree


async def scrape(address):
    """Returns the values of the devices' metrics, by the family and the name of the device."""

    def read():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            return answer.read().decode()

    samples = {}
    for line in (await asyncio.to_thread(read)).splitlines():
        if sample := SAMPLE.match(line):
            samples[sample[1], sample[2]] = float(sample[3])
    return samples


async def test_whole_gpus_are_published_and_measured(world, unused_tcp_port):
    """The helper process asks the library both times. The second GPU does not tell its load."""
    tree = write_tree(world, "nvidia:h100=2", "amd:mi300x", mig_on=0)
    address = f"127.0.0.1:{unused_tcp_port}"
    settings = {"root": tree, "nvml": "true", "metrics-endpoint": address}
    async with world.plugin(**settings):
        await world.kubelet.register()
        await world.published()
        first, second, other = (device["name"] for device in world.devices(""))

        (published,) = world.devices(first)
        assert published["capacity"]["memory"] == {"value": "81559Mi"}
        cluster = "abababab-abab-abab-abab-abababababab"
        told = {
            "cudaDriverVersion": {"version": "12.8.0"},
            "ecc": {"bool": True},
            "fabric": {"string": f"nvlink-{cluster}.4"},
            "fabricState": {"string": "completed"},
        }
        assert {name: published["attributes"][name] for name in told} == told
        assert "fabric" not in world.devices(second)[0]["attributes"]

        samples = await scrape(address)
        assert {family: value for (family, name), value in samples.items() if name == first} == {
            "healthy": 1,
            "temperature_celsius": 61,
            "power_watts": 412.5,
            "busy_ratio": 0.87,
            "memory_used_bytes": 1 << 30,
            "memory_bytes": MEMORY,
        }
        assert ("busy_ratio", second) not in samples
        assert samples["memory_used_bytes", second] == 2 << 30
        assert samples["memory_bytes", other] == 206141652992


async def test_a_library_that_crashes_while_it_measures_costs_nothing_but_its_figures(
    world, unused_tcp_port
):
    tree = write_tree(world, "nvidia:h100", mig_on=0, crashes_in="load")
    address = f"127.0.0.1:{unused_tcp_port}"
    settings = {"root": tree, "nvml": "true", "metrics-endpoint": address}
    async with world.plugin(**settings):
        await world.kubelet.register()
        await world.published()
        families = {family for family, _ in await scrape(address)}
        assert families == {"healthy", "memory_bytes"}


@pytest.mark.parametrize("misbehaving", [{}, {"crashes_in": "init"}])
async def test_mig_instances_are_published_with_what_the_library_tells(world, misbehaving):
    tree = write_tree(world, "nvidia:a100,mig=1", **misbehaving)
    async with world.plugin(root=tree, nvml="true"):
        await world.kubelet.register()
        # The counters of a divided GPU are in a slice of their own, which is written first.
        await apiserver.until(lambda: world.devices("-mig-7-0"))
        (part,) = world.devices("-mig-7-0")
        profile, capacity = part["attributes"]["profile"]["string"], part["capacity"]
        if misbehaving:
            assert (profile, set(capacity)) == ("1g.10gb", {"memory"})
        else:
            assert profile == "1g.10gb+me"
            assert capacity["computeUnits"] == {"value": "14"}
            assert capacity["decoders"] == {"value": "1"}
