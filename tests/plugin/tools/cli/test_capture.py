"""A machine in a file."""

import pytest

from claimd_devices import fake
from tests.support import driver_layouts


def test_a_capture_shows_what_the_machine_showed(claimd, tree, tmp_path):
    file = str(tmp_path / "node.tar")
    (tmp_path / "t/sys/module/nvidia/version").unlink()
    aer = next((tmp_path / "t/sys").rglob("0000:11:00.0/aer_dev_fatal"))
    aer.write_text(aer.read_text().replace("TOTAL_ERR_FATAL 0", "TOTAL_ERR_FATAL 3"))
    (tmp_path / "t/proc/driver/nvidia/version").write_bytes(b"\xff")  # a note with a path
    code, out, _ = claimd("capture", "--root", tree, file)
    assert code == 0
    assert "3 GPUs" in out
    assert "--redact" in out
    for command in (("devices",), ("slices", "--node-name", "n")):
        for output in ("json", "wide"):
            arguments = (*command, "-o", output, "--root")
            assert claimd(*arguments, file) == claimd(*arguments, tree)
    assert list(tmp_path.glob("claimd-*")) == []


SETTINGS = ("--vfio=false", "--vfio=true", "--vfio-bind=*:*")


@pytest.mark.parametrize("captured_with", SETTINGS)
def test_a_capture_answers_for_all_settings_about_virtual_machines(claimd, tmp_path, captured_with):
    tree, file = tmp_path / "t", str(tmp_path / "node.tar")
    fake.write(tree, fake.parse(["amd:mi210", "amd:radeon=2,driver=vfio-pci", "iommu=1"]))
    aer = next((tree / "sys").rglob("0000:17:00.0/aer_dev_fatal"))
    aer.write_text(aer.read_text().replace("TOTAL_ERR_FATAL 0", "TOTAL_ERR_FATAL 3"))
    assert claimd("capture", captured_with, "--root", str(tree), file)[0] == 0
    for setting in SETTINGS:
        for command in (("devices",), ("slices", "--node-name", "n")):
            for output in ("json", "wide"):
                arguments = (*command, "-o", output, setting, "--root")
                assert claimd(*arguments, file) == claimd(*arguments, str(tree))


def test_a_capture_knows_the_libraries_of_the_host(claimd, tree, tmp_path):
    driver_layouts.write(tmp_path / "t", "debian")
    file = str(tmp_path / "node.tar")
    claimd("capture", "--root", tree, file)
    arguments = ("devices", "-o", "json", "--root")
    assert claimd(*arguments, file) == claimd(*arguments, tree)
    assert "libcuda.so.1" in claimd(*arguments, file)[1]


def test_a_capture_that_cannot_be_written(claimd, tree, tmp_path):
    code, _, err = claimd("capture", "--root", tree, str(tmp_path / "none/x.tar"))
    assert code == 1
    assert "No such file" in err


def test_serial_numbers_are_spoken_of_only_where_there_are_some(claimd, tree, tmp_path):
    bus = tmp_path / "none/sys/bus/pci/devices"
    bus.mkdir(parents=True)
    code, out, _ = claimd("capture", "--root", str(tmp_path / "none"), str(tmp_path / "none.tar"))
    assert code == 0
    assert "0 GPUs" in out
    assert "serial numbers" not in out
    _, out, _ = claimd("capture", "--redact", "--root", tree, str(tmp_path / "some.tar"))
    assert "serial numbers" not in out
