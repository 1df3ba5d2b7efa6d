from __future__ import annotations

import errno
import time
from types import SimpleNamespace

import pytest

from claimd_devices import amd, pci, scan
from claimd_devices.gpu import Detail, DeviceNode, Inventory, NotUsable, Roots, Rules
from claimd_devices.vendors import VENDORS
from tests.devices.trees import Make

MIXED = ("nvidia:h100=2", "amd:mi210", "amd:radeon,console", "intel:max1550", "bmc:aspeed")


def addresses(inventory: Inventory) -> list[str]:
    return [gpu.address for gpu in inventory.gpus]


def test_a_mixed_node(make_tree: Make) -> None:
    inventory = make_tree(*MIXED, "numa=2").scan()
    assert [(gpu.name, gpu.vendor, gpu.numa_node, gpu.pcie_root) for gpu in inventory.gpus] == [
        ("gpu-0000-11-00-0", "nvidia", 0, "pci0000:10"),
        ("gpu-0000-13-00-0", "nvidia", 0, "pci0000:12"),
        ("gpu-0000-17-00-0", "amd", 0, "pci0000:14"),
        ("gpu-0000-1b-00-0", "amd", 1, "pci0000:18"),
        ("gpu-0000-1d-00-0", "intel", 1, "pci0000:1c"),
    ]
    assert inventory.find_gpu("gpu-0000-17-00-0") is inventory.gpus[2]


def test_the_same_tree_gives_the_same_inventory(make_tree: Make) -> None:
    tree = make_tree(*MIXED)
    assert tree.scan() == tree.scan()


def test_nothing_there(make_tree: Make) -> None:
    assert make_tree().scan() == Inventory()


def test_a_domain_of_five_digits(make_tree: Make) -> None:
    gpu = make_tree("nvidia:l4,domain=10000").only()
    assert (gpu.name, gpu.address, gpu.pcie_root) == (
        "gpu-10000-11-00-0",
        "10000:11:00.0",
        "pci10000:10",
    )


def test_a_name_survives_the_loss_of_a_neighbour(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x=3")
    before = tree.scan()
    (tree.folder / "sys/bus/pci/devices/0000:13:00.0").unlink()
    assert tree.scan().gpus == before.gpus[1:]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("bmc:aspeed", "an ASPEED server management chip's screen"),
        ("bmc:matrox", "a Matrox server management chip's screen"),
        ("virtual:bochs", "an emulated screen (QEMU, Bochs)"),
        ("virtual:virtio", "a virtual GPU (virtio)"),
        ("virtual:vmware", "a virtual GPU (VMware)"),
    ],
)
def test_screens_that_are_no_gpus(make_tree: Make, model: str, reason: str) -> None:
    tree = make_tree(model)
    assert tree.refusal() == reason
    assert tree.scan().skipped[0].expected


def test_an_unknown_vendor(make_tree: Make) -> None:
    tree = make_tree("virtual:vmware")
    (tree.function("0000:00:02.0") / "vendor").write_text("0x1da3\n")
    assert tree.refusal() == "of a vendor that claimd does not know (1da3:0405)"
    assert not tree.scan().skipped[0].expected


NVIDIA = ["0000:11:00.0", "0000:13:00.0"]
AMD = ["0000:17:00.0", "0000:1b:00.0"]
INTEL = ["0000:1d:00.0"]


@pytest.mark.parametrize(
    ("include", "exclude", "taken"),
    [
        ((), (), NVIDIA + AMD + INTEL),
        (("nvidia",), (), NVIDIA),
        (("nvidia", "intel"), (), NVIDIA + INTEL),
        ((), ("nvidia",), AMD + INTEL),
        (("nvidia",), ("0000:11:00.0",), NVIDIA[1:]),
        (("0000:1?:00.0",), (), NVIDIA + AMD + INTEL),
        (("*:13:00.*",), (), NVIDIA[1:]),
        (("0000:17:*",), (), AMD[:1]),
        (("0001:*:*",), (), []),
        (("10de:2330",), (), NVIDIA),
        (("10DE:2330",), (), NVIDIA),
        (("1002:*",), (), AMD),
        (("1002:74??",), (), [AMD[0], AMD[1]]),
        (("*:0bd5",), (), INTEL),
        ((), ("console",), NVIDIA + AMD[:1] + INTEL),
        (("console",), (), AMD[1:]),
    ],
)
def test_rules(
    make_tree: Make, include: tuple[str, ...], exclude: tuple[str, ...], taken: list[str]
) -> None:
    inventory = scan.scan(make_tree(*MIXED).roots, Rules(include=include, exclude=exclude))
    assert addresses(inventory) == taken
    ruled_out = [skipped for skipped in inventory.skipped if "rule" in skipped.reason]
    assert sorted([*taken, *(skipped.address for skipped in ruled_out)]) == NVIDIA + AMD + INTEL
    assert all(skipped.expected for skipped in ruled_out)


def test_the_reason_names_the_rule(make_tree: Make) -> None:
    inventory = scan.scan(make_tree("nvidia:l4").roots, Rules(exclude=("10de:*",)))
    assert inventory.skipped[0].reason == "excluded by the rule 10de:*"


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "nvidea",
        "41:00.0",
        "0000:41:00",
        "0000:41:00.8",
        "10de",
        "10de:23",
        "10de:23300",
        "0000:*",
        "0000:4*",
        "gpu-1",
    ],
)
def test_a_bad_rule_is_refused_by_name(tmp_path: object, rule: str) -> None:
    for rules in (Rules(include=("nvidia", rule)), Rules(exclude=(rule,))):
        with pytest.raises(
            ValueError, match="is no rule for GPUs: expected a PCI address"
        ) as caught:
            scan.check_rules(rules)
        assert repr(rule) in str(caught.value)


def test_good_rules_pass() -> None:
    scan.check_rules(
        Rules(
            include=("nvidia", "10000:e1:00.0", "*:*", "10de:23*"),
            exclude=("console", "0000:0?:1f.*"),
        )
    )


# A vendor that does not exist, in the form of a module.

MATROX = SimpleNamespace(
    NAME="matrox",
    VENDOR_ID=0x102B,
    DRIVERS=("mgag200",),
    GPU_CLASSES=(pci.DISPLAY,),
    DEVICE_PLUGIN_RESOURCES=(),
    describe=lambda roots, function: Detail(
        nodes=(
            DeviceNode(path="/dev/b", major=1, minor=2),
            DeviceNode(path="/dev/a", major=1, minor=3),
        ),
        product=f"at {function.address}",
    ),
)


def test_a_fourth_vendor_is_one_row(make_tree: Make) -> None:
    tree = make_tree("bmc:matrox", "amd:mi210")
    inventory = scan.scan(tree.roots, vendors=(*VENDORS, MATROX))
    assert [(gpu.vendor, gpu.product) for gpu in inventory.gpus] == [
        ("matrox", "at 0000:00:02.0"),
        ("amd", "AMD Instinct MI210"),
    ]
    assert [node.path for node in inventory.gpus[0].nodes] == ["/dev/a", "/dev/b"]
    scan.check_rules(Rules(include=("matrox",)), (*VENDORS, MATROX))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NotUsable("asleep"), "asleep"),
        (KeyError("x"), "claimd made a mistake with it: KeyError: 'x'"),
        (
            OSError(5, "Input/output error"),
            "claimd made a mistake with it: OSError: [Errno 5] Input/output error",
        ),
    ],
)
def test_a_vendor_that_fails_costs_its_device_alone(
    make_tree: Make, error: Exception, reason: str
) -> None:
    def describe(roots: Roots, function: pci.Function) -> Detail:
        if function.address == "0000:13:00.0":
            raise error
        return amd.describe(roots, function)

    sick = SimpleNamespace(
        NAME="amd",
        VENDOR_ID=0x1002,
        DRIVERS=("amdgpu",),
        GPU_CLASSES=(pci.ACCELERATOR,),
        DEVICE_PLUGIN_RESOURCES=(),
        describe=describe,
    )
    tree = make_tree("amd:mi300x=3")
    inventory = scan.scan(tree.roots, vendors=(sick,))
    assert inventory.gpus == tree.scan().gpus[1:]
    assert [(skipped.address, skipped.reason) for skipped in inventory.skipped] == [
        ("0000:13:00.0", reason)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("words", [("nvidia:h100=64",), ("amd:mi300x=32", "intel:max1550=32")])
def test_sixty_four_gpus_take_a_few_milliseconds(make_tree: Make, words: tuple[str, ...]) -> None:
    """Measures processor time, because other programs may use the machine as well."""
    tree = make_tree(*words)
    took = []
    for _ in range(20):
        before = time.process_time()
        inventory = tree.scan()
        took.append(time.process_time() - before)
    assert len(inventory.gpus) == 64
    assert min(took) < 0.10


def test_parts_and_virtual_functions_sleep_as_their_gpu_does(make_tree: Make) -> None:
    tree = make_tree("intel:flex170,vfs=1", "amd:mi300x,mode=dpx")
    for address in ("0000:13:00.0", "0000:17:00.0"):
        (tree.function(address) / "power/runtime_status").write_text("suspended\n")
    gpus = tree.scan().gpus
    assert len(gpus) == 5
    assert {gpu.is_asleep for gpu in gpus} == {True}
    assert {gpu.link_width for gpu in gpus} == {None}


def test_a_gpu_that_sleeps_keeps_the_link_that_it_had(make_tree: Make) -> None:
    tree = make_tree("amd:mi210=2")
    awake = tree.scan()
    (tree.function("0000:13:00.0") / "power/runtime_status").write_text("suspended\n")
    asleep = tree.scan()
    assert [gpu.link_width for gpu in asleep.gpus] == [None, 16]
    known = scan.with_links_of(awake, asleep)
    assert known == awake
    assert [gpu.link_speed for gpu in known.gpus] == [16000, 16000]
    assert [gpu.link_width_now for gpu in known.gpus] == [None, 16]
    assert scan.with_links_of(known, asleep) == awake
    assert scan.with_links_of(Inventory(), asleep) == asleep


def test_another_gpu_in_its_place_has_another_link(make_tree: Make) -> None:
    awake = make_tree("amd:mi210").scan()
    tree = make_tree("amd:mi210")
    (tree.function("0000:13:00.0") / "power/runtime_status").write_text("suspended\n")
    (tree.function("0000:13:00.0") / "device").write_text("0x7408\n")
    asleep = tree.scan()
    assert scan.with_links_of(awake, asleep) == asleep


def test_who_was_the_console_stays_it_though_the_screen_is_in_standby(make_tree: Make) -> None:
    tree = make_tree("nvidia:rtx4090,console")
    before = tree.scan()
    folder = tree.function("0000:11:00.0")
    (folder / "drm/card0/card0-DP-1/status").write_text("disconnected\n")
    after = tree.scan()
    assert [gpu.console for gpu in (*before.gpus, *after.gpus)] == [True, False]
    assert scan.with_consoles_of(before, after) == before
    assert scan.with_consoles_of(after, after) == after
    assert scan.with_consoles_of(Inventory(), after) == after


def test_another_gpu_in_the_console_s_place_is_none(make_tree: Make) -> None:
    before = make_tree("nvidia:rtx4090,console").scan()
    after = make_tree("nvidia:l4").scan()
    assert scan.with_consoles_of(before, after) == after


def test_an_accelerator_of_another_vendor_is_no_screen(make_tree: Make) -> None:
    """Huawei makes both screens of server management chips and accelerators (Ascend)."""
    tree = make_tree("bmc:aspeed")
    folder = tree.function("0000:00:02.0")
    for name, value in (("vendor", "0x19e5"), ("device", "0xd802"), ("class", "0x120000")):
        (folder / name).write_text(f"{value}\n")
    (skipped,) = tree.scan().skipped
    assert skipped.reason == "an accelerator of a vendor that claimd does not know (19e5:d802)"
    assert not skipped.expected
    (folder / "class").write_text("0x030000\n")
    (skipped,) = tree.scan().skipped
    assert skipped.reason == "a Huawei server management chip's screen"
    assert skipped.expected


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("0x0100", "a virtual GPU (QXL)"),
        ("0x0005", "an emulated device (QEMU)"),
    ],
)
def test_of_qemu_s_devices_one_is_qxl(make_tree: Make, device: str, reason: str) -> None:
    tree = make_tree("bmc:aspeed")
    folder = tree.function("0000:00:02.0")
    (folder / "vendor").write_text("0x1b36\n")
    (folder / "device").write_text(f"{device}\n")
    (skipped,) = tree.scan().skipped
    assert (skipped.reason, skipped.expected) == (reason, True)


@pytest.mark.parametrize("driver", ["intel_vpu", "none"])
def test_an_npu_is_no_gpu_and_nothing_is_wrong_with_it(make_tree: Make, driver: str) -> None:
    tree = make_tree(f"intel:uhd770,driver={driver}")
    folder = tree.function("0000:00:02.0")
    (folder / "class").write_text("0x120000\n")
    (folder / "device").write_text("0x7d1d\n")
    (skipped,) = tree.scan().skipped
    assert skipped.reason == "an accelerator that is no GPU (8086:7d1d)"
    assert skipped.expected


@pytest.mark.parametrize(
    ("rule", "taken"),
    [
        ("nvidia", [True, False]),
        ("amd", [False, True]),
        ("0000:11:00.0", [True, False]),
        ("1002:*", [False, True]),
        ("console", [False, False]),
    ],
)
def test_a_rule_of_its_own_takes_gpus_as_those_of_a_scan_do(
    make_tree: Make, rule: str, taken: list[bool]
) -> None:
    takes = scan.matcher(rule)
    assert [takes(gpu) for gpu in make_tree("nvidia:l4", "amd:mi210").scan().gpus] == taken


def test_a_rule_takes_a_virtual_function_by_the_address_of_its_gpu(make_tree: Make) -> None:
    takes = scan.matcher("0000:13:00.0")
    gpus = make_tree("intel:flex170,vfs=1", "intel:flex170").scan().gpus
    assert [takes(gpu) for gpu in gpus] == [True, True, False]
    assert [gpu.parent is not None for gpu in gpus] == [False, True, False]


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("nvidia:h100", "bound to no kernel driver, expected nvidia"),
        ("amd:mi210", "bound to no kernel driver, expected amdgpu"),
    ],
)
def test_a_gpu_without_a_driver_is_named(make_tree: Make, word: str, reason: str) -> None:
    tree = make_tree(word)
    (tree.function(tree.only().address) / "driver").unlink()
    assert tree.refusal() == reason


@pytest.mark.parametrize("link", ["driver", "physfn"])
def test_a_function_with_a_link_that_cannot_be_read_is_unread(
    make_tree: Make, errors_of, link: str
) -> None:
    tree = make_tree("nvidia:h100")
    path = f"{tree.folder}/sys/bus/pci/devices/{tree.only().address}/{link}"
    errors_of({path: errno.EIO})
    (skipped,) = tree.scan().skipped
    assert (skipped.is_unread, skipped.expected) == (True, False)
    assert f"{link}: Input/output error" in skipped.reason
