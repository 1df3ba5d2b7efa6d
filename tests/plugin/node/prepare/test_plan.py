import pytest

from claimd.common import errors
from claimd.node.prepare import plan
from claimd.node.prepared import gpu_of
from claimd_devices.gpu import MOUNTED, NONE, Inventory, Libraries, Skipped
from tests.support.worlds import DRIVER, NODE, claim, gpu, gpu_config, inventory, opaque, result

FIRST, SECOND = gpu(0).name, gpu(1).name
NOW = "2026-01-01T00:00:00Z"


def plan_claim(claim_, neighbours=(), inventory_=None):
    return plan.plan(
        claim_,
        driver=DRIVER,
        pool=NODE,
        inventory=inventory_ or inventory(),
        neighbours=neighbours,
        now=NOW,
    )


def test_identity_is_kept_and_numbers_are_not():
    prepared = plan_claim(claim("c", result(FIRST)))
    (device,) = prepared.devices
    assert (device.device, device.address, device.uuid) == (FIRST, "0000:41:00.0", "0" * 16)
    assert prepared.reserved_for == ("pods/pod-c pod-uid-c",)
    assert "226" not in repr(prepared)


def test_same_input_same_output():
    both = claim("c", result(SECOND, "b"), result(FIRST, "a"))
    assert plan_claim(both) == plan_claim(both)
    assert [device.device for device in plan_claim(both).devices] == [SECOND, FIRST]


def test_not_allocated():
    with pytest.raises(errors.ClaimError, match="default/c is not allocated"):
        plan_claim(claim("c"))


def test_results_of_other_drivers_are_theirs():
    assert (
        plan_claim(claim("c", {**result("x"), "driver": "other.example"}, result(FIRST)))
        .devices[0]
        .device
        == FIRST
    )
    assert plan_claim(claim("c", {**result("x"), "driver": "other.example"})).devices == ()


def test_pool_of_another_node():
    with pytest.raises(errors.ClaimError, match=r"pool node-2.*this node's pool is node-1"):
        plan_claim(claim("c", {**result(FIRST), "pool": "node-2"}))


def test_missing_device_says_why_and_is_worth_waiting_for():
    known = Inventory.from_unsorted(
        [], [Skipped(address="0000:41:00.0", reason="not ready: no render node yet")]
    )
    with pytest.raises(
        errors.NotReadyError, match=r"gpu-0000-41-00-0.*not ready: no render node yet"
    ) as seen:
        plan_claim(claim("c", result(FIRST)), inventory_=known)
    assert seen.value.patience > 1


def test_device_of_another_claim_is_refused_with_its_name():
    held = plan_claim(claim("first", result(FIRST)))
    with pytest.raises(
        errors.NotReadyError, match=r"still prepared for claim default/first \(uid uid-first\)"
    ):
        plan_claim(claim("second", result(FIRST)), [held])
    assert plan_claim(claim("second", result(SECOND)), [held])
    assert plan_claim(claim("first", result(FIRST)), [held]) == held


def test_admin_access_overlaps_both_ways():
    plain, admin = claim("plain", result(FIRST)), claim("admin", result(FIRST, adminAccess=True))
    assert plan_claim(admin, [plan_claim(plain)]).devices[0].admin
    assert plan_claim(plain, [plan_claim(admin)])


def test_shares_overlap_with_shares_only():
    first, second = (
        claim("one", result(FIRST, shareID="s1")),
        claim("two", result(FIRST, shareID="s2")),
    )
    assert plan_claim(second, [plan_claim(first)]).devices[0].share_id == "s2"
    with pytest.raises(errors.NotReadyError):
        plan_claim(claim("whole", result(FIRST)), [plan_claim(first)])


def test_two_shares_of_one_device_in_one_claim_are_two_devices():
    prepared = plan_claim(
        claim("c", result(FIRST, "a", shareID="s1"), result(FIRST, "b", shareID="s2"))
    )
    assert [(device.requests, device.share_id) for device in prepared.devices] == [
        (("a",), "s1"),
        (("b",), "s2"),
    ]


def share(number, **consumed):
    return result(FIRST, shareID=f"share-{number}", consumedCapacity=consumed)


def test_what_a_share_has_is_kept_but_not_what_it_has_nothing_of():
    (device,) = plan_claim(claim("c", share(1, memory="10Gi", computeUnits="0"))).devices
    assert device.consumed_capacity == {"memory": "10Gi"}
    assert plan_claim(claim("c", result(FIRST))).devices[0].consumed_capacity == {}
    with pytest.raises(errors.ClaimError, match="memory: expected a quantity"):
        plan_claim(claim("c", share(1, memory="much")))


def test_a_capacity_has_one_name_however_it_is_written():
    """Since Kubernetes 1.38 a driver's own capacity may be written with the driver's name."""
    written = {f"{DRIVER}/memory": "10Gi", "example.com/memory": "1"}
    (device,) = plan_claim(claim("c", share(1, **written))).devices
    assert device.consumed_capacity == {"memory": "10Gi", "example.com/memory": "1"}
    (device,) = plan_claim(claim("c", share(1, memory="1Gi", **written))).devices
    assert device.consumed_capacity["memory"] == "10Gi", "as Kubernetes 1.38 reads both"


def test_memory_is_counted_under_both_its_names():
    sized = Inventory.from_unsorted([gpu(0, memory=80 << 30)])
    held = plan_claim(claim("held", share(1, **{f"{DRIVER}/memory": "76Gi"})), [], sized)
    with pytest.raises(errors.NotReadyError, match="would be given away"):
        plan_claim(claim("c", share(2, memory="40Gi")), [held], sized)


@pytest.mark.parametrize("share_id", ["", "s1.", "=", "a b", "S1", "s" * 64, "../s"])
def test_a_share_by_an_id_that_is_none_is_refused(share_id):
    """A container runtime would not read the CDI file: the device's name there ends in it."""
    with pytest.raises(errors.ClaimError, match="no id that Kubernetes gives"):
        plan_claim(claim("c", result(FIRST, shareID=share_id)))


@pytest.mark.parametrize("name", ["", "a=b", "a\n", "a b", "/memory", "é"])
def test_a_share_of_a_capacity_that_is_none_is_refused(name):
    """A variable of the container is named after it."""
    with pytest.raises(errors.ClaimError, match="no capacity that Kubernetes allows"):
        plan_claim(claim("c", share(1, **{name: "1"})))


def test_a_share_of_more_than_a_quantity_may_be_is_refused():
    sized = Inventory.from_unsorted([gpu(0, memory=16 << 30)])
    largest = str(2**63 - 1)
    with pytest.raises(errors.ClaimError, match="9223372036854775808 is more than a quantity"):
        plan_claim(claim("c", share(1, memory=str(2**63))), [], sized)
    unknown = Inventory.from_unsorted([gpu(0, memory=0)])
    held = plan_claim(claim("held", share(1, memory=largest)), [], unknown)
    with pytest.raises(errors.NotReadyError, match="would be given away"):
        plan_claim(claim("c", share(2, memory=largest)), [held], sized)


def test_shares_cannot_have_more_memory_than_there_is():
    """The scheduler sees to it; this is the last line of defence."""
    sized = Inventory.from_unsorted([gpu(0, memory=16 << 30)])
    held = [plan_claim(claim(f"held-{n}", share(n, memory="6Gi"))) for n in range(2)]
    assert plan_claim(claim("fits", share(7, memory="4Gi")), held, sized)
    with pytest.raises(
        errors.NotReadyError, match=r"5Gi of this claim 17Gi.*held-0, default/held-1"
    ):
        plan_claim(claim("too-much", share(7, memory="5Gi")), held, sized)
    assert plan_claim(claim("held-0", share(0, memory="6Gi")), held, sized), (
        "its own does not count"
    )
    watching = plan_claim(
        claim("watching", share(8, memory="16Gi") | {"adminAccess": True}), [], sized
    )
    assert plan_claim(claim("fits", share(7, memory="4Gi")), [*held, watching], sized)
    assert plan_claim(claim("too-much", share(7, memory="5Gi")), held), (
        "nobody knows how much there is"
    )


def test_one_device_of_two_requests_is_one_device():
    (device,) = plan_claim(
        claim("c", result(FIRST, "a", adminAccess=True), result(FIRST, "b", adminAccess=True))
    ).devices
    assert device.requests == ("a", "b")


@pytest.mark.parametrize("request_name", ["..", "", "a b", "A", "x" * 64, "../gpu"])
def test_a_request_whose_name_is_none_is_refused(request_name):
    """An API server checks that; here it would become a part of a path."""
    with pytest.raises(errors.ClaimError, match="no name that Kubernetes allows"):
        plan_claim(claim("c", result(FIRST, request_name)))


def test_subrequest_is_answered_by_its_base_name():
    assert plan_claim(claim("c", result(FIRST, "gpu/big"))).devices[0].requests == ("gpu",)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            [
                opaque(gpu_config(environment={"A": "claim"})),
                opaque(gpu_config(environment={"A": "class"}, claimsMaySet=["A"]), "FromClass"),
            ],
            "claim",
        ),
        (
            [
                opaque(gpu_config(environment={"A": "1"})),
                opaque(gpu_config(environment={"A": "2"})),
            ],
            "2",
        ),
        ([opaque(gpu_config(environment={"A": "other"}), requests=["other"])], None),
        ([opaque(gpu_config(environment={"A": "mine"}), requests=["gpu"])], "mine"),
    ],
)
def test_configuration_precedence(config, expected):
    (device,) = plan_claim(claim("c", result(FIRST), config=config)).devices
    assert device.environment.get("A") == expected


def test_configuration_of_the_parent_request_counts_for_the_chosen_subrequest():
    config = [
        opaque(gpu_config(permissions="r"), requests=["gpu"]),
        opaque(gpu_config(permissions="m"), requests=["gpu/x"]),
    ]
    assert (
        plan_claim(claim("c", result(FIRST, "gpu/big"), config=config)).devices[0].permissions
        == "r"
    )


def test_configuration_for_other_drivers_is_ignored():
    entry = {
        "source": "FromClaim",
        "opaque": {"driver": "other.example", "parameters": {"what": "ever"}},
    }
    assert plan_claim(claim("c", result(FIRST), config=[entry])).devices[0].permissions == "rw"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (gpu_config(enviroment={}), "enviroment"),
        (gpu_config(permissions="rx"), "permissions are some of r, w and m"),
        (gpu_config(permissions="rr"), "permissions are some of"),
        (gpu_config(environment={"1A": "x"}), "'1A' is no name of an environment variable"),
        (gpu_config(environment={"A": 1}), "environment"),
        ({"apiVersion": "claimd.dev/v9", "kind": "GpuConfig"}, "GpuConfig of claimd.dev/v9"),
        ({"apiVersion": "claimd.dev/v1alpha1", "kind": "Other"}, "Other of claimd.dev/v1alpha1"),
        ({}, "apiVersion"),
        (None, "not a GpuConfig"),
    ],
)
def test_configuration_is_strict(parameters, message):
    with pytest.raises(errors.ClaimError, match=message):
        plan_claim(claim("c", result(FIRST), config=[opaque(parameters)]))


def test_still_allocated():
    prepared = plan_claim(claim("c", result(FIRST), result(SECOND, "b")))
    assert plan.is_still_allocated(
        prepared, claim("c", result(SECOND, "b"), result(FIRST)), DRIVER, NODE
    )
    assert not plan.is_still_allocated(prepared, claim("c", result(FIRST)), DRIVER, NODE)


def test_another_gpu_in_its_place_is_refused():
    prepared = plan_claim(claim("c", result(FIRST)))
    with pytest.raises(
        errors.ClaimError, match=r"another GPU.*0000000000000000 was recorded, ffff is there"
    ):
        gpu_of(prepared.devices[0], Inventory.from_unsorted([gpu(0, uuid="ffff")]))
    assert gpu_of(prepared.devices[0], Inventory.from_unsorted([gpu(0, uuid=None)]))


def test_a_gpu_without_libraries_is_refused_if_they_are_required():
    def known(how):
        return Inventory.from_unsorted(
            [gpu(0, libraries=Libraries(how=how, reason="as it was found"))]
        )

    for there in (known(MOUNTED), inventory()):
        plan.refuse_without_libraries(
            plan_claim(claim("c", result(FIRST)), inventory_=there), there
        )
    prepared = plan_claim(claim("c", result(FIRST)), inventory_=known(NONE))
    message = f"{FIRST} has no libraries .*: as it was found; .*require-libraries"
    with pytest.raises(errors.ClaimError, match=message):
        plan.refuse_without_libraries(prepared, known(NONE))


def test_a_gpu_and_its_parts_exclude_each_other_and_parts_do_not():
    parts = [gpu(0, name=f"{FIRST}-xcp-{n}", parent=FIRST, kind="partition") for n in range(2)]
    known = Inventory.from_unsorted([gpu(0), gpu(1), *parts])
    part, other = parts[0].name, parts[1].name
    held = plan_claim(claim("first", result(part)), inventory_=known)
    assert plan_claim(claim("second", result(other)), [held], known)
    assert plan_claim(claim("second", result(SECOND)), [held], known)
    with pytest.raises(
        errors.NotReadyError, match=f"{part} is still prepared for claim default/first"
    ):
        plan_claim(claim("second", result(FIRST)), [held], known)
    with pytest.raises(errors.NotReadyError, match=f"{part} is still prepared"):
        plan_claim(
            claim("second", result(FIRST)), [held], inventory()
        )  # the part is gone, its claim is not
    whole = plan_claim(claim("first", result(FIRST)), inventory_=known)
    with pytest.raises(errors.NotReadyError, match=f"{FIRST} is still prepared"):
        plan_claim(claim("second", result(other)), [whole], known)
    assert plan_claim(claim("second", result(other, adminAccess=True)), [whole], known)


def test_a_divided_gpu_is_given_to_nobody_as_a_whole():
    parts = [gpu(0, name=f"{FIRST}-xcp-{n}", parent=FIRST, kind="partition") for n in range(2)]
    there = Inventory.from_unsorted([gpu(0, kind="divided", profile="dpx_nps1"), gpu(1), *parts])
    message = rf"{FIRST} is divided \(dpx_nps1\) and has 2 parts.*part\.gpu\.claimd\.dev"
    with pytest.raises(errors.ClaimError, match=message):
        plan_claim(claim("c", result(FIRST)), inventory_=there)
    assert plan_claim(claim("c", result(parts[0].name)), inventory_=there)
    assert plan_claim(claim("monitor", result(FIRST, adminAccess=True)), inventory_=there)


def test_a_divided_gpu_without_a_part_is_nobodys():
    """As one with MIG on and no instance."""
    there = Inventory.from_unsorted([gpu(0, kind="divided"), gpu(1)])
    with pytest.raises(errors.ClaimError, match=rf"{FIRST} is divided and has no part"):
        plan_claim(claim("c", result(FIRST)), inventory_=there)


def test_a_missing_part_says_what_is_wrong_with_its_gpu():
    known = Inventory.from_unsorted(
        [], [Skipped(address="0000:41:00.0", reason="its partition mode is not known")]
    )
    with pytest.raises(errors.NotReadyError, match="its partition mode is not known"):
        plan_claim(claim("c", result(f"{FIRST}-xcp-3")), inventory_=known)
