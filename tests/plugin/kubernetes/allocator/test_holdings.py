"""Tests of the devices that claims hold, by device and by pool."""

from claimd.kubernetes.allocator.holdings import Holdings
from claimd.kubernetes.allocator.identity import DeviceID, PoolID
from claimd.kubernetes.api.scheduling import ResourceClaim
from tests.support import allocating

GPU = DeviceID("d.org", "p", "gpu-0")


def claim(name, *devices, pool="p", **more):
    results = [
        {"request": "r", "driver": "d.org", "pool": pool, "device": device} | more
        for device in devices
    ]
    document = {
        "metadata": {"name": name, "namespace": "n"},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    return allocating.read(document, ResourceClaim)


def gather(*claims):
    return Holdings(claims)


def test_the_claims_of_a_device_each_once():
    shared = gather(claim("a", "gpu-0", "gpu-0"), claim("b", "gpu-0"), claim("c", "gpu-1"))
    assert shared.claims_of(GPU) == ("n/a", "n/b")
    assert shared.claims_of(GPU._replace(device="gpu-9")) == ()


def test_admin_access_holds_nothing():
    assert gather(claim("a", "gpu-0", adminAccess=True)).claims_of(GPU) == ()


def test_holdings_of_pools_in_the_pools_order():
    holdings = gather(claim("a", "x", pool="q"), claim("b", "y", "z"), claim("c", "w", pool="r"))
    in_pools = holdings.in_pools({PoolID("d.org", "q"), PoolID("d.org", "p"), PoolID("d.org", "s")})
    assert [(holding.claim, holding.device.device) for holding in in_pools] == [
        ("n/b", "y"),
        ("n/b", "z"),
        ("n/a", "x"),
    ]


def test_each_holding_is_itself():
    """Remedies are sets of holdings, so two equal holdings of one claim must stay distinct."""
    twice = gather(claim("a", "gpu-0", "gpu-0")).in_pools({PoolID("d.org", "p")})
    assert len(set(twice)) == 2
