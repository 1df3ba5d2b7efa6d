import json
import os

import pytest

from plugin import cdi, claims, errors, names
from tests.support.worlds import DRIVER, NODE, claim, gpu, gpu_config, inventory, opaque, result

FIRST = gpu(0).name


def prepared(*results, name="c", config=None):
    return claims.plan(
        claim(name, *(results or (result(FIRST),)), config=config),
        driver=DRIVER,
        pool=NODE,
        inventory=inventory(),
        prepared=(),
        now="2026-01-01T00:00:00Z",
    )


def test_spec_is_what_runtimes_take():
    spec = json.loads(cdi.build(prepared(), inventory()))
    assert spec == {
        "cdiVersion": "0.5.0",
        "kind": "claimd.dev/claim",
        "devices": [
            {
                "name": f"uid-c-{FIRST}",
                "containerEdits": {
                    "env": ["CLAIMD_GPU_0000_41_00_0=0000:41:00.0"],
                    "deviceNodes": [
                        {"path": "/dev/dri/card0", "type": "c", "major": 226, "minor": 0, "permissions": "rw"},
                        {"path": "/dev/dri/renderD128", "type": "c", "major": 226, "minor": 128, "permissions": "rw"},
                    ],
                },
            }
        ],
    }


def test_configuration_reaches_the_container():
    config = [opaque(gpu_config(environment={"A": "b"}, permissions="r"))]
    (device,) = json.loads(cdi.build(prepared(config=config), inventory()))["devices"]
    assert "A=b" in device["containerEdits"]["env"]
    assert {node["permissions"] for node in device["containerEdits"]["deviceNodes"]} == {"r"}


def test_numbers_are_those_of_the_moment():
    renumbered = gpu(0).nodes[0].__class__(path="/dev/dri/card7", major=226, minor=7)
    moved = inventory(0).of([gpu(0, nodes=(renumbered,))])
    assert b"card7" in cdi.build(prepared(), moved)


def test_names_are_unique_and_carry_claim_and_share():
    spec = json.loads(
        cdi.build(prepared(result(FIRST, "a", shareID="s1"), result(FIRST, "b", shareID="s2")), inventory())
    )
    assert [device["name"] for device in spec["devices"]] == [f"uid-c-{FIRST}-s1", f"uid-c-{FIRST}-s2"]


def test_gone_gpu_has_no_spec():
    with pytest.raises(errors.NotReadyError):
        cdi.build(prepared(), inventory(0))


@pytest.fixture
def folder(tmp_path):
    return cdi.SpecFolder(tmp_path / "cdi", DRIVER)


def test_ensure_writes_once_and_puts_right(folder, tmp_path):
    path = tmp_path / "cdi" / names.cdi_file(DRIVER, "u1")
    assert folder.ensure("u1", b"spec")
    assert not folder.ensure("u1", b"spec")
    assert not folder.disturbed()
    path.write_bytes(b"edited")
    assert folder.disturbed()
    assert folder.ensure("u1", b"spec")
    path.unlink()
    assert folder.disturbed()
    assert folder.ensure("u1", b"spec")
    assert path.read_bytes() == b"spec"
    assert os.listdir(tmp_path / "cdi") == [path.name], "no temporary file is left"


def test_a_folder_that_was_wiped_is_made_anew(folder, tmp_path):
    folder.ensure("u1", b"spec")
    for file in (tmp_path / "cdi").iterdir():
        file.unlink()
    (tmp_path / "cdi").rmdir()
    assert folder.disturbed()
    assert folder.ensure("u1", b"spec")


def test_right_content_of_another_instance_is_left(folder, tmp_path):
    cdi.SpecFolder(tmp_path / "cdi", DRIVER).ensure("u1", b"spec")
    assert not folder.ensure("u1", b"spec")


def test_only_ours_are_listed_and_removed(folder, tmp_path):
    folder.ensure("u1", b"spec")
    cdi.SpecFolder(tmp_path / "cdi", "other.driver").ensure("u2", b"spec")
    (tmp_path / "cdi" / "nvidia.yaml").write_text("theirs")
    assert folder.written() == {"u1"}
    folder.remove("u1")
    folder.remove("u1")
    assert folder.written() == set()
    assert len(os.listdir(tmp_path / "cdi")) == 2


def test_a_failed_write_leaves_nothing(tmp_path):
    (tmp_path / "cdi").write_text("a file where the folder should be")
    with pytest.raises(OSError):
        cdi.SpecFolder(tmp_path / "cdi", DRIVER).ensure("u1", b"spec")
    assert os.listdir(tmp_path) == ["cdi"]


def test_a_list_of_what_to_see_names_all_gpus_of_the_claim_the_devices_own_first():
    """The runtime takes a variable from the last device of a container."""
    known = inventory(0).of(gpu(n, environment=(("ROCR_VISIBLE_DEVICES", f"GPU-{n}"),)) for n in range(2))
    both = prepared(result(FIRST, "a"), result(gpu(1).name, "b"))
    seen = [
        next(e for e in device["containerEdits"]["env"] if e.startswith("ROCR_"))
        for device in json.loads(cdi.build(both, known))["devices"]
    ]
    assert seen == ["ROCR_VISIBLE_DEVICES=GPU-0,GPU-1", "ROCR_VISIBLE_DEVICES=GPU-1,GPU-0"]


def test_one_gpu_that_cannot_be_named_hides_no_other():
    known = inventory(0).of([gpu(0, environment=(("ROCR_VISIBLE_DEVICES", "GPU-0"),)), gpu(1)])
    both = prepared(result(FIRST, "a"), result(gpu(1).name, "b"))
    assert b"ROCR_VISIBLE_DEVICES" not in cdi.build(both, known)
