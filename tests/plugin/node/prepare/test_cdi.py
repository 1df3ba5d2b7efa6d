import json

import pytest

from claimd.common import errors, names
from claimd.node.prepare import cdi, plan
from claimd_devices import fake, scan
from claimd_devices.gpu import CDI, MOUNTED, Libraries, Mount, Roots
from tests.support.worlds import DRIVER, NODE, claim, gpu, gpu_config, inventory, opaque, result

FIRST = gpu(0).name


def plan_claim(*results, name="c", config=None, inventory_=None):
    return plan.plan(
        claim(name, *(results or (result(FIRST),)), config=config),
        driver=DRIVER,
        pool=NODE,
        inventory=inventory_ or inventory(),
        neighbours=(),
        now="2026-01-01T00:00:00Z",
    )


def test_spec_is_what_runtimes_take():
    spec = json.loads(cdi.build(plan_claim(), inventory()))
    assert spec == {
        "cdiVersion": "0.5.0",
        "kind": "claimd.dev/claim",
        "devices": [
            {
                "name": f"uid-c-{FIRST}",
                "containerEdits": {
                    "env": ["CLAIMD_GPU_0000_41_00_0=0000:41:00.0"],
                    "deviceNodes": [
                        {
                            "path": "/dev/dri/card0",
                            "type": "c",
                            "major": 226,
                            "minor": 0,
                            "permissions": "rw",
                        },
                        {
                            "path": "/dev/dri/renderD128",
                            "type": "c",
                            "major": 226,
                            "minor": 128,
                            "permissions": "rw",
                        },
                    ],
                },
            }
        ],
    }


def test_configuration_reaches_the_container():
    config = [opaque(gpu_config(environment={"A": "b"}, permissions="r"))]
    (device,) = json.loads(cdi.build(plan_claim(config=config), inventory()))["devices"]
    assert "A=b" in device["containerEdits"]["env"]
    assert {node["permissions"] for node in device["containerEdits"]["deviceNodes"]} == {"r"}


def test_numbers_are_those_of_the_moment():
    renumbered = gpu(0).nodes[0].__class__(path="/dev/dri/card7", major=226, minor=7)
    moved = inventory(0).from_unsorted([gpu(0, nodes=(renumbered,))])
    assert b"card7" in cdi.build(plan_claim(), moved)


def test_names_are_unique_and_carry_claim_and_share():
    spec = json.loads(
        cdi.build(
            plan_claim(result(FIRST, "a", shareID="s1"), result(FIRST, "b", shareID="s2")),
            inventory(),
        )
    )
    assert [device["name"] for device in spec["devices"]] == [
        f"uid-c-{FIRST}-s1",
        f"uid-c-{FIRST}-s2",
    ]


def test_each_share_of_a_device_has_variables_of_its_own():
    """A runtime merges what a container gets of several claims: the last of a name would win."""
    first = result(FIRST, "a", shareID="aaaaaaaa-1", consumedCapacity={"memory": "10Gi"})
    more = {"memory": "1500M", "computeUnits": "20", "shares": "0"}
    second = result(FIRST, "b", shareID="bbbbbbbb-2", consumedCapacity=more)
    variables = []
    for given in (plan_claim(first), plan_claim(second, name="d"), plan_claim(first, second)):
        for device in json.loads(cdi.build(given, inventory()))["devices"]:
            variables.append(
                {line for line in device["containerEdits"]["env"] if "_A" in line or "_B" in line}
            )
    ten = {"CLAIMD_GPU_0000_41_00_0_AAAAAAAA_MEMORY=10737418240"}
    some = {
        "CLAIMD_GPU_0000_41_00_0_BBBBBBBB_MEMORY=1500000000",
        "CLAIMD_GPU_0000_41_00_0_BBBBBBBB_COMPUTE_UNITS=20",
    }
    assert variables == [ten, some, ten, some]


def test_the_variable_of_a_capacity_does_not_depend_on_how_it_is_written():
    qualified = {f"{DRIVER}/memory": "10Gi"}
    given = plan_claim(result(FIRST, shareID="aaaaaaaa-1", consumedCapacity=qualified))
    (device,) = json.loads(cdi.build(given, inventory()))["devices"]
    assert "CLAIMD_GPU_0000_41_00_0_AAAAAAAA_MEMORY=10737418240" in device["containerEdits"]["env"]


def test_who_has_admin_access_is_told():
    variables = {}
    for admin in (True, False):
        spec = json.loads(cdi.build(plan_claim(result(FIRST, adminAccess=admin)), inventory()))
        [device] = spec["devices"]
        variables[admin] = set(device["containerEdits"]["env"])
    assert variables[True] - variables[False] == {"DRA_ADMIN_ACCESS=true"}


def test_gone_gpu_has_no_spec():
    with pytest.raises(errors.NotReadyError):
        cdi.build(plan_claim(), inventory(0))


def test_each_driver_has_files_of_its_own(tmp_path):
    ours, others = cdi.SpecFolder(tmp_path, DRIVER), cdi.SpecFolder(tmp_path, "other.driver")
    ours.ensure("u1", b"spec")
    others.ensure("u2", b"spec")
    (tmp_path / "nvidia.yaml").write_text("theirs")
    assert (ours.sweep(), others.sweep()) == ({"u1"}, {"u2"})
    assert (tmp_path / names.cdi_file(DRIVER, "u1")).exists()


FILES = {"a": Mount(source="/host/a", target="/in/a"), "b": Mount(source="/host/b", target="/in/b")}


def list_mounts(spec):
    """By device, what is mounted with it."""
    return {
        device["name"].removeprefix("uid-c-"): [
            mount["containerPath"] for mount in device["containerEdits"].get("mounts", ())
        ]
        for device in spec["devices"]
    }


def test_the_file_of_a_request_comes_with_the_first_of_its_devices():
    """Whoever names the request gets all of them. What all devices have stands apart from it."""
    known = inventory(0).from_unsorted([gpu(index, libraries=MOUNTED_ALL) for index in range(3)])
    results = [result(gpu(0).name, "a"), result(gpu(1).name, "a"), result(gpu(2).name, "b")]
    given = plan_claim(*results, inventory_=known)
    spec = json.loads(cdi.build(given, known, metadata=FILES))
    assert list_mounts(spec) == {gpu(0).name: ["/in/a"], gpu(1).name: [], gpu(2).name: ["/in/b"]}
    assert targets(spec) == ["/usr/lib64/libcuda.so", "/usr/lib64/libnvidia-ml.so.1"]
    (mount_of_b,) = spec["devices"][2]["containerEdits"]["mounts"]
    assert mount_of_b == {
        "hostPath": "/host/b",
        "containerPath": "/in/b",
        "options": ["ro", "nosuid", "nodev", "bind"],
    }


def test_a_device_of_two_requests_comes_with_both_files():
    given = plan_claim(result(FIRST, "a"), result(FIRST, "b"))
    spec = json.loads(cdi.build(given, inventory(), metadata=FILES))
    assert list_mounts(spec) == {FIRST: ["/in/a", "/in/b"]}


@pytest.mark.parametrize(
    "model", ["nvidia:h100=2", "amd:mi300x=2", "amd:mi300x,mode=dpx", "intel:max1550=2"]
)
def test_two_claims_in_one_container_take_nothing_from_each_other(tmp_path, model):
    """Their specs are merged, and of a variable that both set one value stays: it must not hide
    what the other gave.
    """
    fake.write(tmp_path / "tree", fake.parse([model]))
    known = scan.scan(Roots.in_folder(tmp_path / "tree"))
    parts = [gpu for gpu in known.gpus if gpu.parent] or known.gpus
    first, second = (
        dict(variable.split("=", 1) for variable in device["containerEdits"]["env"])
        for number, part in enumerate(parts)
        for device in json.loads(cdi.build(plan_claim(result(part.name), inventory_=known), known))[
            "devices"
        ]
    )
    assert {name: first[name] for name in first.keys() & second.keys()} == {
        name: second[name] for name in first.keys() & second.keys()
    }
    assert first != second, "each names its own GPU"


def mount(name, capability="compute", folder="/usr/lib64"):
    return Mount(source=f"/host/{name}.570.1", target=f"{folder}/{name}", capability=capability)


MOUNTS = (
    mount("libcuda.so"),
    mount("libnvidia-ml.so.1", "utility"),
    mount("libGLX_nvidia.so.0", "graphics"),
    mount("libnvcuvid.so.1", "video"),
)
MOUNTED_ALL = Libraries(how=MOUNTED, reason="", mounts=MOUNTS)


def targets(spec):
    edits = spec.get("containerEdits") or spec["devices"][0]["containerEdits"]
    return [mount["containerPath"] for mount in edits["mounts"]]


def test_libraries_are_mounted_once_for_all_devices():
    known = inventory(0).from_unsorted([gpu(index, libraries=MOUNTED_ALL) for index in range(2)])
    given = plan_claim(result(FIRST), result(gpu(1).name), inventory_=known)
    spec = json.loads(cdi.build(given, known))
    assert all("mounts" not in device["containerEdits"] for device in spec["devices"])
    assert spec["containerEdits"]["env"] == ["TRITON_LIBCUDA_PATH=/usr/lib64"]
    assert spec["containerEdits"]["mounts"][0] == {
        "hostPath": "/host/libcuda.so.570.1",
        "containerPath": "/usr/lib64/libcuda.so",
        "options": ["ro", "nosuid", "nodev", "bind"],
    }
    assert targets(spec) == ["/usr/lib64/libcuda.so", "/usr/lib64/libnvidia-ml.so.1"]


def test_a_configuration_asks_for_more():
    known = inventory(0).from_unsorted([gpu(0, libraries=MOUNTED_ALL)])
    config = [opaque(gpu_config(capabilities=["video"]))]
    given = plan_claim(config=config, inventory_=known)
    assert given.devices[0].capabilities == ("video",)
    assert "/usr/lib64/libnvcuvid.so.1" in targets(json.loads(cdi.build(given, known)))
    assert "/usr/lib64/libGLX_nvidia.so.0" not in targets(json.loads(cdi.build(given, known)))


def test_the_hosts_spec_brings_the_libraries():
    by_spec = Libraries(how=CDI, reason="", host_cdi=("nvidia.com/gpu=0", "other.nvidia.com/gpu=0"))
    given = plan_claim(inventory_=inventory(0).from_unsorted([gpu(0, libraries=by_spec)]))
    assert given.devices[0].host_cdi == "nvidia.com/gpu=0"
    list_mounts = inventory(0).from_unsorted([gpu(0, libraries=MOUNTED_ALL)])
    assert b"mounts" not in cdi.build(given, list_mounts), (
        "what the claim was given stays, whatever the host has now"
    )


def test_the_hook_is_told_the_libraries_and_the_drivers_version():
    debian = mount("libcuda.so", folder="/usr/lib/x86_64-linux-gnu")
    beside = mount("nvidia-drm_gbm.so", folder="/usr/lib/x86_64-linux-gnu/gbm")
    libraries = Libraries(how=MOUNTED, reason="", mounts=(debian, beside, *MOUNTS))
    gpus = [gpu(index, libraries=libraries, driver_version="580.95.05") for index in range(2)]
    known = inventory(0).from_unsorted(gpus)
    given = plan_claim(result(FIRST), result(gpu(1).name), inventory_=known)
    assert b"hooks" not in cdi.build(given, known)
    spec = json.loads(cdi.build(given, known, "/var/lib/claimd/claimd-ld-cache"))
    (hook,) = spec["containerEdits"]["hooks"]
    assert hook == {
        "hookName": "createContainer",
        "path": "/var/lib/claimd/claimd-ld-cache",
        "args": [
            "claimd-ld-cache",
            "--cuda-compat",
            "580",
            "/usr/lib/x86_64-linux-gnu",
            "libcuda.so",
        ],
        "env": ["LC_ALL=C"],
    }, "an empty environment would be that of the image"


def test_without_libraries_there_is_no_hook():
    assert b"hooks" not in cdi.build(plan_claim(), inventory(), "/var/lib/claimd/claimd-ld-cache")
