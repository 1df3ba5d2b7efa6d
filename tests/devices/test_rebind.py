from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from claimd.common import errors
from claimd_devices import fake, open_files, rebind, scan
from claimd_devices.failures import LookFailedError
from claimd_devices.gpu import Roots, Rules
from claimd_devices.rebind import Binding
from tests.devices.trees import Make
from tests.support import hostile_text, playing_kernel, silent_files
from tests.support.playing_kernel import SOUND, PlayingKernel

GPU, ITS_SOUND = "0000:11:00.0", "0000:11:00.1"
OWN = {GPU: ("nvidia", ""), ITS_SOUND: (SOUND, "")}
TAKEN = {GPU: ("vfio-pci", "vfio-pci"), ITS_SOUND: ("vfio-pci", "vfio-pci")}


@pytest.fixture
def kernel(make_tree: Make) -> Iterator[PlayingKernel]:
    """A kernel with one GPU and the function for the sound of its screen."""
    with playing_kernel.playing(make_tree("nvidia:l4", "iommu=1").folder) as kernel:
        kernel.add_neighbour(ITS_SOUND, of=GPU, driver=SOUND, class_code="040300")
        yield kernel


attempt = playing_kernel.Attempt


def refusal(kernel: PlayingKernel, kind: type[rebind.Refused] = rebind.Refused) -> str:
    with pytest.raises(rebind.Refused) as raised:
        rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    assert type(raised.value) is kind
    return str(raised.value)


def test_there_and_back(kernel: PlayingKernel) -> None:
    roots = Roots.in_folder(kernel.folder)
    functions = rebind.bindings(roots, GPU)
    assert functions == (
        Binding(address=GPU, driver="nvidia", device="10de:27b8"),
        Binding(address=ITS_SOUND, driver=SOUND),
    )
    assert kernel.state() == OWN
    assert not kernel.done

    rebind.take(attempt(kernel), functions)
    assert kernel.state() == TAKEN
    assert rebind.is_taken(roots, functions)
    (gpu,) = scan.scan(roots, Rules(vfio=True)).gpus
    assert [node.path for node in gpu.nodes] == ["/dev/vfio/20", "/dev/vfio/vfio"]

    rebind.give_back(attempt(kernel), functions)
    assert kernel.state() == OWN
    assert scan.scan(roots).gpus[0].kind == "gpu"


VARIANT = "nvgrace_gpu_vfio_pci"


def test_a_gpu_that_does_not_answer_is_not_taken(kernel: PlayingKernel) -> None:
    config = kernel.folder / "sys/bus/pci/devices" / GPU / "config"
    config.write_bytes(b"\xff" * 64)
    assert refusal(kernel) == (
        "it does not answer on the PCI bus: its configuration space reads all ones; "
        "power-cycle the node"
    )
    assert kernel.state() == OWN


def test_a_variant_that_the_kernel_has_for_the_gpu(kernel: PlayingKernel) -> None:
    roots = Roots.in_folder(kernel.folder)
    fake.add_vfio_variant(kernel.folder, "10de:27b8", VARIANT)
    assert refusal(kernel) == (
        f"it is for virtual machines, and {VARIANT} is not loaded: run `modprobe {VARIANT}` on "
        "the node, and name it in /etc/modules-load.d"
    )

    kernel.add_driver(VARIANT)
    functions = rebind.bindings(roots, GPU)
    rebind.take(attempt(kernel), functions)
    assert kernel.state() == {GPU: (VARIANT, VARIANT), ITS_SOUND: ("vfio-pci", "vfio-pci")}
    assert rebind.is_taken(roots, functions)
    (gpu,) = scan.scan(roots, Rules(vfio=True)).gpus
    assert gpu.driver == VARIANT
    assert [node.path for node in gpu.nodes] == ["/dev/vfio/20", "/dev/vfio/vfio"]

    rebind.give_back(attempt(kernel), functions)
    assert kernel.state() == OWN


def test_a_gpu_that_was_taken_before_the_variant_was_known_stays_taken(
    kernel: PlayingKernel,
) -> None:
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    rebind.take(attempt(kernel), functions)
    fake.add_vfio_variant(kernel.folder, "10de:27b8", VARIANT)
    kernel.add_driver(VARIANT)
    rebind.take(attempt(kernel), functions)
    assert kernel.state() == TAKEN
    rebind.give_back(attempt(kernel), functions)
    assert kernel.state() == OWN


def test_a_list_of_modules_that_is_not_there_means_vfio_pci(
    kernel: PlayingKernel, caplog: pytest.LogCaptureFixture
) -> None:
    (kernel.folder / "lib/modules/6.14.0/modules.alias").unlink()
    rebind.take(attempt(kernel), rebind.bindings(Roots.in_folder(kernel.folder), GPU))
    assert kernel.state() == TAKEN
    assert f"{GPU}: vfio-pci is taken and no variant of it, because of /lib/modules" in caplog.text


def test_what_an_older_checkpoint_does_not_know_does_not_matter(kernel: PlayingKernel) -> None:
    bindings = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    functions = [replace(function, device="") for function in bindings]
    rebind.check_same(Roots.in_folder(kernel.folder), functions)
    rebind.take(attempt(kernel), functions)
    assert kernel.state() == TAKEN
    rebind.give_back(attempt(kernel), functions)
    assert kernel.state() == OWN


def test_both_may_be_repeated(kernel: PlayingKernel) -> None:
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    rebind.take(attempt(kernel), functions)
    done = list(kernel.done)
    rebind.take(attempt(kernel), functions)
    assert kernel.done == done
    rebind.give_back(attempt(kernel), functions)
    done = list(kernel.done)
    rebind.give_back(attempt(kernel), functions)
    assert kernel.done == done


class Died(BaseException):
    """Raised where the process would die."""


class Dying(playing_kernel.Attempt):
    """An attempt that dies at the write with this number, or after it."""

    def __init__(self, kernel: PlayingKernel, number: int, *, after: bool) -> None:
        super().__init__(kernel)
        self.left, self.after = number, after

    def write(self, path: str, value: str) -> None:
        self.left -= 1
        if self.left < 0 and not self.after:
            raise Died
        super().write(path, value)
        if self.left < 0:
            raise Died


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("number", range(6))
def test_death_at_every_write(kernel: PlayingKernel, number: int, after: bool) -> None:
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)

    for work, end in ((rebind.take, OWN), (rebind.take, TAKEN), (rebind.give_back, OWN)):
        rebind.give_back(attempt(kernel), functions)
        if work is rebind.give_back:
            rebind.take(attempt(kernel), functions)
        with pytest.raises(Died):
            work(Dying(kernel, number, after=after), functions)
        kernel.finish()
        another = rebind.take if end == TAKEN else rebind.give_back
        another(attempt(kernel), functions)
        assert kernel.state() == end


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("number", range(6))
def test_a_former_driver_that_is_not_known_is_chosen_by_the_kernel(
    kernel: PlayingKernel, number: int, after: bool
) -> None:
    """The process dies at a write, and another one goes on. A third one finds nothing to do."""
    before = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    rebind.take(attempt(kernel), before)
    functions = [replace(function, driver=rebind.KERNELS_CHOICE) for function in before]
    assert rebind.is_taken(Roots.in_folder(kernel.folder), functions)
    rebind.take(attempt(kernel), functions)
    assert kernel.state() == TAKEN

    with pytest.raises(Died):
        rebind.give_back(Dying(kernel, number, after=after), functions)
    kernel.finish()
    rebind.give_back(attempt(kernel), functions)
    kernel.finish()
    assert kernel.state() == OWN
    rebind.give_back(Dying(kernel, 0, after=False), functions)


def test_the_override_and_the_driver_of_before_come_back(kernel: PlayingKernel) -> None:
    folder = kernel.folder / "sys/bus/pci/devices"
    (folder / GPU / "driver_override").write_text("nvidia\n")
    (folder / ITS_SOUND / "driver").unlink()
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    before = kernel.state()
    assert before == {GPU: ("nvidia", "nvidia"), ITS_SOUND: ("", "")}
    rebind.take(attempt(kernel), functions)
    rebind.give_back(attempt(kernel), functions)
    assert kernel.state() == before


def test_a_driver_that_does_not_let_go(kernel: PlayingKernel) -> None:
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    kernel.stubborn.add("nvidia")
    with pytest.raises(rebind.Refused, match=f"^nvidia does not let go of {GPU}$"):
        rebind.take(attempt(kernel), functions)
    assert kernel.state() == OWN


def test_a_function_that_vfio_pci_cannot_take(kernel: PlayingKernel) -> None:
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    kernel.unwilling.add("vfio-pci")
    with pytest.raises(rebind.Refused, match=f"^vfio-pci does not take {GPU}; the kernel's log"):
        rebind.take(attempt(kernel), functions)
    assert kernel.state() == OWN


def test_a_driver_that_does_not_take_it_back(kernel: PlayingKernel) -> None:
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    rebind.take(attempt(kernel), functions)
    kernel.unwilling.add("nvidia")
    with pytest.raises(rebind.Refused, match=f"^nvidia does not take {GPU} back$"):
        rebind.give_back(attempt(kernel), functions)
    assert kernel.state() == {GPU: ("", ""), ITS_SOUND: OWN[ITS_SOUND]}
    kernel.unwilling.clear()
    rebind.give_back(attempt(kernel), functions)
    assert kernel.state() == OWN


def test_what_the_kernel_does_not_take_is_said_with_its_reason(kernel: PlayingKernel) -> None:
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    unbind = kernel.folder / "sys/bus/pci/drivers/nvidia/unbind"
    unbind.unlink()
    unbind.symlink_to("/dev/full")
    with pytest.raises(rebind.Refused, match="drivers/nvidia/unbind: No space left on device$"):
        rebind.take(attempt(kernel), functions)
    assert kernel.state() == OWN


def test_an_attempt_that_was_given_up_does_nothing_more(kernel: PlayingKernel) -> None:
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    kernel.hang("nvidia")
    waiting = attempt(kernel)
    thread = threading.Thread(target=_ignoring(rebind.take), args=(waiting, functions), daemon=True)
    thread.start()
    override = kernel.folder / f"sys/bus/pci/devices/{GPU}/driver_override"
    while override.read_text() != "vfio-pci\n":
        thread.join(0.001)

    waiting.given_up = True
    kernel.resume("nvidia")
    thread.join(10)
    kernel.finish()
    assert {what for what, _, _ in kernel.done} <= {"unbind"}, "no more than it had begun"
    assert kernel.override(GPU) == "vfio-pci"
    assert kernel.state()[ITS_SOUND] == OWN[ITS_SOUND]
    rebind.give_back(attempt(kernel), functions)
    assert kernel.state() == OWN


def _ignoring(work: Callable[..., None]) -> Callable[..., None]:
    def target(*arguments: object) -> None:
        with contextlib.suppress(Exception):
            work(*arguments)

    return target


def test_a_function_that_is_gone_needs_no_driver(kernel: PlayingKernel) -> None:
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    rebind.take(attempt(kernel), functions)
    (kernel.folder / f"sys/bus/pci/devices/{GPU}").unlink()
    rebind.give_back(attempt(kernel), functions)
    assert kernel.state() == {ITS_SOUND: OWN[ITS_SOUND]}


@pytest.mark.parametrize("former", ["nvidia", rebind.KERNELS_CHOICE])
@pytest.mark.parametrize("override", ["", "nouveau"])
def test_a_driver_that_somebody_bound_meanwhile_stays(
    kernel: PlayingKernel, former: str, override: str
) -> None:
    gpu, sound = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    functions = (replace(gpu, driver=former), sound)
    rebind.take(attempt(kernel), functions)
    kernel.bind(GPU, "nouveau")
    if override:
        path = kernel.folder / f"sys/bus/pci/devices/{GPU}/driver_override"
        path.write_text(f"{override}\n")
    for _ in range(2):
        rebind.give_back(attempt(kernel), functions)
        assert kernel.state() == {GPU: ("nouveau", override), ITS_SOUND: OWN[ITS_SOUND]}


def test_an_attempt_that_is_given_up_while_it_gives_back_says_nothing(
    kernel: PlayingKernel,
) -> None:
    class Given(playing_kernel.Attempt):
        def wait_until(self, fact: Callable[[], bool]) -> bool:
            is_fact = super().wait_until(fact)
            self.given_up = not is_fact
            return is_fact

    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    kernel.unwilling.add("vfio-pci")
    with pytest.raises(rebind._GivenUp):
        rebind.take(Given(kernel), functions)


def test_a_driver_that_is_not_loaded_now_gets_it_from_the_kernel(kernel: PlayingKernel) -> None:
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    rebind.take(attempt(kernel), functions)
    drivers = kernel.folder / "sys/bus/pci/drivers"
    os.rename(drivers / "nvidia", drivers / "away")
    rebind.give_back(attempt(kernel), functions)
    assert kernel.state()[GPU] == ("", "")


# ---------------------------------------------------------------- programs that have it open


@pytest.mark.parametrize("node", ["/dev/nvidia0", "/dev/dri/card0", "/dev/dri/renderD128"])
def test_a_gpu_that_a_program_has_open_is_refused(kernel: PlayingKernel, node: str) -> None:
    kernel.open_by(812, "python3", "/dev/null", node)
    assert refusal(kernel, rebind.InUse) == "python3 (pid 812) still has it open on the node"
    kernel.end(812)
    assert rebind.bindings(Roots.in_folder(kernel.folder), GPU)


def test_a_node_counts_by_its_number_wherever_it_is(kernel: PlayingKernel, tmp_path: Path) -> None:
    """/dev/null stands for the GPU, whose node has another path in a container."""
    dev = kernel.folder / f"sys/bus/pci/devices/{GPU}/drm/renderD128/dev"
    dev.chmod(0o644)
    kernel.open_by(9, "train", "/dev/null")
    assert rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    dev.write_text("1:3\n")
    assert refusal(kernel, rebind.InUse) == "train (pid 9) still has it open on the node"


@pytest.mark.parametrize("node", ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1", "/dev/null"])
def test_who_has_another_open_does_not_count(kernel: PlayingKernel, node: str) -> None:
    kernel.open_by(812, "python3", node)
    assert rebind.bindings(Roots.in_folder(kernel.folder), GPU)


def test_a_file_that_is_called_like_a_node_does_not_count(tmp_path: Path) -> None:
    """A container has such a file in its own mount namespace, and no GPU. This process has it."""
    path = tmp_path / "renderD128"
    with open(path, "w"):
        assert rebind._programs_with(Roots(), {str(path): (226, 128)}) == []
        assert rebind._programs_with(Roots(), {str(path): None}) == []


def test_without_numbers_the_path_of_a_device_decides() -> None:
    with open("/dev/null") as null:
        nodes = {null.name: None, "/dev/dri/renderD128": (226, 128)}
        programs = rebind._programs_with(Roots(), nodes)
        assert any(f"(pid {os.getpid()})" in program for program in programs)
        assert rebind._programs_with(Roots(), {null.name: (226, 128)}) == []


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("call", ["listdir", "device_numbers", "readlink"])
def test_without_a_look_nobody_is_taken_for_unused(
    kernel: PlayingKernel, monkeypatch: pytest.MonkeyPatch, error: int, call: str
) -> None:
    """A lack of descriptors or memory says nothing about who has the GPU open."""
    kernel.open_by(812, "python3", "/dev/null")
    place = open_files if call == "device_numbers" else os
    original = getattr(place, call)

    def fail(path, *arguments, **named):
        if f"proc/812/fd{'' if call == 'listdir' else '/'}" in str(path):
            raise OSError(error, os.strerror(error))
        return original(path, *arguments, **named)

    monkeypatch.setattr(place, call, fail)
    with pytest.raises(LookFailedError, match=os.strerror(error)):
        rebind._programs_with(Roots.in_folder(kernel.folder), {"/dev/dri/card0": None})


@pytest.mark.skipif(not silent_files.is_possible(), reason="needs root and /dev/fuse")
def test_a_file_of_a_tenant_that_never_says_what_it_is_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Checks a file system of a tenant's own, of which this process has a file open."""
    seen: list[list[str]] = []

    def look() -> None:
        seen.append(rebind._programs_with(Roots(), {"/dev/nvidia0": (195, 0)}))

    with silent_files.open_file(tmp_path):
        looking = threading.Thread(target=look)
        looking.start()
        looking.join(20)
        has_ended = not looking.is_alive()
    looking.join()
    assert has_ended
    assert not any(f"(pid {os.getpid()})" in program for program in seen[0])


@pytest.mark.parametrize("name", ["a\nclaimd: all is well", "\x1b[2J", "x\u202ey"])
def test_the_name_of_a_tenant_s_program_is_no_line_of_ours(
    kernel: PlayingKernel, name: str
) -> None:
    """Checks what the driver tells: any program may choose its name."""
    kernel.open_by(812, name, "/dev/nvidia0")
    told = errors.ClaimError(refusal(kernel, rebind.InUse))
    hostile_text.check_printed(str(told), "the refusal")
    assert "\n" not in str(told)


def test_processes_that_cannot_be_listed(kernel: PlayingKernel, errors_of) -> None:
    errors_of({f"{kernel.folder}/proc": errno.EACCES})
    assert "Permission denied" in refusal(kernel)


@pytest.mark.parametrize("node", ["/dev/vfio/20", "/dev/vfio/devices/vfio0"])
def test_a_virtual_machine_that_still_runs_keeps_it(kernel: PlayingKernel, node: str) -> None:
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    rebind.take(attempt(kernel), functions)
    device = (kernel.folder / f"sys/bus/pci/devices/{GPU}").resolve() / "vfio-dev/vfio0"
    device.mkdir(parents=True)
    (device / "dev").write_text("242:0\n")
    kernel.open_by(33, "qemu-system-x86", node)
    with pytest.raises(rebind.InUse, match=r"^qemu-system-x86 \(pid 33\) still has it open"):
        rebind.give_back(attempt(kernel), functions)
    assert kernel.state() == TAKEN


@pytest.mark.parametrize("given", [True, False])
def test_nvidia_s_own_lock(kernel: PlayingKernel, given: bool) -> None:
    """The lock is granted only while the GPU is unused, and released if the try fails."""
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    lock = kernel.folder / f"proc/driver/nvidia/gpus/{GPU}/unbindLock"
    if given:
        lock.write_text("0\n")
        kernel.stubborn.add("nvidia")
    else:
        lock.symlink_to("/dev/null")
    with pytest.raises(rebind.Refused) as raised:
        rebind.take(attempt(kernel), functions)
    assert isinstance(raised.value, rebind.InUse) is not given
    assert kernel.state() == OWN
    assert not given or lock.read_text() == "0\n"


# ---------------------------------------------------------------- devices that must not be taken


def test_a_neighbour_that_is_used_is_named(kernel: PlayingKernel) -> None:
    kernel.add_neighbour("0000:12:00.0", of=GPU, driver="nvme", class_code="010802")
    expected = (
        "it shares IOMMU group 20 with 0000:12:00.0, which the driver nvme uses: "
        "a virtual machine would take both"
    )
    assert refusal(kernel) == expected
    (skipped,) = scan.scan(Roots.in_folder(kernel.folder), Rules(vfio_bind=("nvidia",))).skipped
    assert skipped.reason == expected


@pytest.mark.parametrize(
    ("driver", "class_code"),
    [("nvme", "010802"), ("r8169", "020000"), ("ahci", "010601"), ("ccp", "108000")],
)
def test_what_is_no_part_of_a_card_does_not_go_with_it(
    kernel: PlayingKernel, driver: str, class_code: str
) -> None:
    """On some boards, all functions of a chip are in one slot."""
    kernel.add_neighbour("0000:11:00.2", of=GPU, driver=driver, class_code=class_code)
    assert refusal(kernel) == (
        f"it shares IOMMU group 20 with 0000:11:00.2, which the driver {driver} uses: "
        "a virtual machine would take both"
    )


@pytest.mark.parametrize(
    ("driver", "class_code"),
    [("xhci_hcd", "0c0330"), ("nvidia-gpu", "0c8000"), (SOUND, "040300"), ("", "010802")],
)
def test_what_a_card_has_goes_with_it(kernel: PlayingKernel, driver: str, class_code: str) -> None:
    kernel.add_neighbour("0000:11:00.2", of=GPU, driver=driver, class_code=class_code)
    assert len(rebind.bindings(Roots.in_folder(kernel.folder), GPU)) == 3


@pytest.mark.parametrize(
    ("path", "is_used"),
    [
        ("usb3/3-1/3-1:1.0/host6/target6:0:0/6:0:0:0/block/sdb", True),
        ("usb3/3-2/3-2:1.0/net/eth1", True),
        ("usb3/3-3/3-3:1.0/input/input9", False),
    ],
)
def test_a_usb_controller_with_a_disk_or_the_network_does_not_go_with_it(
    kernel: PlayingKernel, path: str, is_used: bool
) -> None:
    kernel.add_neighbour("0000:11:00.2", of=GPU, driver="xhci_hcd", class_code="0c0330")
    (kernel.folder / "sys/bus/pci/devices/0000:11:00.2" / path).mkdir(parents=True)
    if is_used:
        assert "with 0000:11:00.2, which the driver xhci_hcd uses" in refusal(kernel)
    else:
        assert len(rebind.bindings(Roots.in_folder(kernel.folder), GPU)) == 3


@pytest.mark.parametrize(
    ("driver", "class_code"), [("pcieport", "060400"), ("", "010802"), ("vfio-pci", "010802")]
)
def test_bridges_and_what_nobody_uses_are_no_hindrance(
    kernel: PlayingKernel, driver: str, class_code: str
) -> None:
    kernel.add_neighbour("0000:12:00.0", of=GPU, driver=driver, class_code=class_code)
    assert len(rebind.bindings(Roots.in_folder(kernel.folder), GPU)) == 2


def test_without_vfio_pci(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4", "iommu=1")
    with pytest.raises(rebind.Refused, match="run `modprobe vfio-pci` on the node"):
        rebind.bindings(tree.roots, GPU)


def test_a_gpu_with_virtual_functions(kernel: PlayingKernel) -> None:
    (kernel.folder / f"sys/bus/pci/devices/{GPU}/sriov_numvfs").write_text("4\n")
    assert refusal(kernel) == "it is divided into 4 virtual functions"


def test_a_gpu_at_whose_screen_somebody_works(make_tree: Make) -> None:
    tree = make_tree("amd:radeon,console", "iommu=1")
    with playing_kernel.playing(tree.folder):
        with pytest.raises(rebind.InUse, match="^it shows the node's console, and a screen"):
            rebind.bindings(tree.roots, tree.only().address)
        (gpu,) = scan.scan(tree.roots, Rules(vfio_bind=("*:*",))).gpus
    assert (gpu.kind, gpu.console) == ("gpu", True)


def test_a_gpu_that_is_gone(kernel: PlayingKernel) -> None:
    with pytest.raises(rebind.Refused, match="^the kernel shows no such device$"):
        rebind.bindings(Roots.in_folder(kernel.folder), "0000:77:00.0")


def test_a_file_that_must_not_be_written(kernel: PlayingKernel) -> None:
    """The same refusal comes for a read-only /sys and for a missing file."""
    (kernel.folder / f"sys/bus/pci/devices/{GPU}/driver_override").unlink()
    assert refusal(kernel).endswith("the node's claimd needs deploy/components/vfio")


# ---------------------------------------------------------------- what is published during a claim


def test_it_is_the_same_device_in_every_state(kernel: PlayingKernel) -> None:
    """vfio-pci lets the GPU sleep, so its link is that of the scan before."""
    roots = Roots.in_folder(kernel.folder)
    rules = Rules(vfio_bind=("nvidia",))
    functions = rebind.bindings(roots, GPU)
    before = scan.scan(roots, rules)
    seen = []

    class Looking(playing_kernel.Attempt):
        def write(self, path: str, value: str) -> None:
            super().write(path, value)
            kernel.finish()
            inventory = scan.with_links_of(before, scan.scan(roots, rules))
            assert inventory.skipped == ()
            seen.extend(inventory.gpus)

    rebind.take(Looking(kernel), functions)
    rebind.give_back(Looking(kernel), functions)
    assert len(seen) == 12
    assert {replace(gpu, nodes=()) for gpu in seen} == {replace(seen[0], nodes=())}
    assert {len(gpu.nodes) for gpu in seen} == {0, 2}
    first = seen[0]
    assert (first.kind, first.driver, first.is_bound_on_demand) == ("vfio", "vfio-pci", True)


# ---------------------------------------------------------------- files that cannot be read

SYSFS = f"sys/bus/pci/devices/{GPU}"


@pytest.mark.parametrize(
    "file",
    [
        f"{SYSFS}/driver",
        f"{SYSFS}/driver_override",
        f"{SYSFS}/vendor",
        f"{SYSFS}/boot_vga",
        f"{SYSFS}/sriov_numvfs",
        f"{SYSFS}/iommu_group/devices",
        f"{SYSFS}/drm",
        f"proc/driver/nvidia/gpus/{GPU}/information",
    ],
)
def test_a_gpu_with_a_file_that_cannot_be_read_is_refused(
    kernel: PlayingKernel, errors_of, file: str
) -> None:
    errors_of({f"{kernel.folder}/{file}": errno.EIO})
    assert "Input/output error" in refusal(kernel)
    errors_of({f"{kernel.folder}/{file}": errno.EMFILE})
    with pytest.raises((rebind.Refused, LookFailedError), match="Too many open files"):
        rebind.bindings(Roots.in_folder(kernel.folder), GPU)


@pytest.mark.parametrize("name", ["driver", "iommu_group/devices"])
def test_a_look_that_failed_is_no_reason_to_refuse(
    kernel: PlayingKernel, errors_of, name: str
) -> None:
    errors_of({f"{kernel.folder}/{SYSFS}/{name}": errno.EMFILE})
    with pytest.raises(LookFailedError, match="Too many open files"):
        rebind.bindings(Roots.in_folder(kernel.folder), GPU)


@pytest.mark.parametrize("file", ["", "/driver", "/driver_override"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOMEM])
def test_a_gpu_that_cannot_be_looked_at_is_given_back_later(
    kernel: PlayingKernel, errors_of, file: str, error: int
) -> None:
    if not file and error == errno.EIO:
        pytest.skip("only a lack of memory keeps the kernel from finding a folder")
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    rebind.take(attempt(kernel), functions)
    errors_of({f"{kernel.folder}/{SYSFS}{file}": error})
    with pytest.raises((rebind.Refused, LookFailedError)):
        rebind.give_back(attempt(kernel), functions)
    errors_of({})
    rebind.give_back(attempt(kernel), functions)
    assert kernel.state() == OWN


def test_a_look_that_fails_halfway_gives_back_what_was_taken(
    kernel: PlayingKernel, errors_of
) -> None:
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    errors_of({f"{kernel.folder}/sys/bus/pci/devices/{ITS_SOUND}/driver": errno.ENFILE})
    with pytest.raises(rebind.Refused, match="Too many open files in system"):
        rebind.take(attempt(kernel), functions)
    assert kernel.state() == OWN


def test_nvidia_s_lock_that_cannot_be_looked_at_stops_the_unbind(
    kernel: PlayingKernel, errors_of
) -> None:
    """Without the lock, the unbind would wait for the last user in the kernel."""
    functions = rebind.bindings(Roots.in_folder(kernel.folder), GPU)
    errors_of({f"{kernel.folder}/proc/driver/nvidia/gpus/{GPU}/unbindLock": errno.ENOMEM})
    with pytest.raises((rebind.Refused, LookFailedError), match="Cannot allocate memory"):
        rebind.take(attempt(kernel), functions)
    assert {what for what, _, _ in kernel.done} & {"unbind"} == set()
    assert kernel.driver(GPU) == "nvidia"


def test_a_usb_controller_that_cannot_be_looked_at_does_not_go_with_the_gpu(
    kernel: PlayingKernel, errors_of
) -> None:
    kernel.add_neighbour("0000:11:00.2", of=GPU, driver="xhci_hcd", class_code="0c0330")
    usb = "sys/bus/pci/devices/0000:11:00.2/usb3"
    (kernel.folder / usb / "3-2/net/eth1").mkdir(parents=True)
    errors_of({f"{kernel.folder}/{usb}/3-2": errno.ENOMEM})
    with pytest.raises(LookFailedError):
        rebind.bindings(Roots.in_folder(kernel.folder), GPU)


def test_a_function_that_vfio_pci_has_already_is_only_kept_from_others(
    kernel: PlayingKernel,
) -> None:
    """A program may use it: it is neither unbound nor probed again."""
    roots = Roots.in_folder(kernel.folder)
    functions = rebind.bindings(roots, GPU)
    rebind.take(attempt(kernel), functions)
    override = kernel.folder / f"{SYSFS}/driver_override"
    override.write_text("(null)\n")
    done = list(kernel.done)
    rebind.take(attempt(kernel), functions)
    kernel.finish()
    assert kernel.done == done
    assert kernel.state() == TAKEN
