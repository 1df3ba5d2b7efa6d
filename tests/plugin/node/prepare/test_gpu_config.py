"""Configurations from classes and claims: who may say what, what they cost at most, and what is no text."""

import time
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from claimd.common import budgets, errors, plain_text
from claimd.kubernetes.api.resource import DeviceAllocationConfiguration, OpaqueConfig
from claimd.node.prepare import cdi, checkpoint, gpu_config, metadata, plan
from tests.support import samples, worst_claims
from tests.support.worlds import DRIVER, NODE, claim, gpu, inventory, opaque, result
from tests.support.worlds import gpu_config as config

FIRST, SECOND = gpu(0).name, gpu(1).name
NOW = "2026-01-01T00:00:00Z"


def plan_claim(*configs, results=None, gpus=2):
    results = results or (result(FIRST),)
    return plan.plan(
        claim("c", *results, config=list(configs)),
        driver=DRIVER,
        pool=NODE,
        inventory=inventory(gpus),
        neighbours=(),
        now=NOW,
    )


def of_class(**fields):
    return opaque(config(**fields), "FromClass")


def of_claim(**fields):
    return opaque(config(**fields))


# ---------------------------------------------------------------------- who may say what


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "AMD_VISIBLE_DEVICES",
        "CLAIMD_GPU_X",
        "DRA_ADMIN_ACCESS",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "GLIBC_TUNABLES",
        "GCONV_PATH",
    ],
)
def test_a_claim_cannot_set_what_the_driver_or_the_loader_owns(name):
    with pytest.raises(
        errors.ClaimError,
        match=rf"sets {name}, which a claim may set only if its class has `claimsMaySet: \[{name}\]",
    ):
        plan_claim(of_claim(environment={name: "all"}))


def test_a_class_may_set_what_the_loader_owns_or_leave_it_to_claims():
    (device,) = plan_claim(of_class(environment={"LD_LIBRARY_PATH": "/opt"})).devices
    assert device.environment == {"LD_LIBRARY_PATH": "/opt"}
    (device,) = plan_claim(
        of_class(claimsMaySet=["LD_LIBRARY_PATH"]),
        of_claim(environment={"LD_LIBRARY_PATH": "/mine"}),
    ).devices
    assert device.environment == {"LD_LIBRARY_PATH": "/mine"}


def test_nobody_sets_what_comes_with_the_gpu_itself():
    owned = {"NVIDIA_VISIBLE_DEVICES": "void"}
    entries = [
        gpu_config.SourcedConfig(
            source=gpu_config.CLASS,
            requests=(),
            config=gpu_config.GpuConfig(
                api_version="", kind="", environment={"NVIDIA_VISIBLE_DEVICES": "all"}
            ),
        )
    ]
    with pytest.raises(errors.ClaimError, match="which claimd sets itself"):
        gpu_config.merge_configs(entries, ["gpu"], owned)
    assert gpu_config.merge_configs(entries, ["gpu"], {}).environment


def test_names_that_only_look_alike_are_free():
    (device,) = plan_claim(
        of_claim(environment={"MY_LD_PRELOAD": "x", "LDAP": "y", "A": "z"})
    ).devices
    assert set(device.environment) == {"MY_LD_PRELOAD", "LDAP", "A"}


def test_what_a_class_sets_stands():
    with pytest.raises(errors.ClaimError, match=r"sets A, which the class sets already; .*\[A\]"):
        plan_claim(of_class(environment={"A": "class"}), of_claim(environment={"A": "claim"}))
    (device,) = plan_claim(
        of_class(environment={"A": "same"}), of_claim(environment={"A": "same", "B": "more"})
    ).devices
    assert device.environment == {"A": "same", "B": "more"}


def test_capabilities_of_class_and_claim_add_up():
    given = plan_claim(
        of_class(capabilities=["video", "graphics"]), of_claim(capabilities=["graphics", "ngx"])
    )
    assert {device.capabilities for device in given.devices} == {("graphics", "ngx", "video")}
    with pytest.raises(errors.ClaimError, match="'grafics' is no capability; known are compute"):
        plan_claim(of_claim(capabilities=["grafics"]))


def test_permissions_of_a_class_stand():
    with pytest.raises(errors.ClaimError, match="wants permissions 'rwm', but the class gives 'r'"):
        plan_claim(of_class(permissions="r"), of_claim(permissions="rwm"))
    assert plan_claim(of_class(permissions="rw"), of_claim(permissions="wr")).devices
    (device,) = plan_claim(
        of_class(permissions="r", claimsMaySet=["permissions"]), of_claim(permissions="rwm")
    ).devices
    assert device.permissions == "rwm"


def test_permissions_are_the_claims_where_no_class_says_any():
    assert plan_claim(of_claim(permissions="r")).devices[0].permissions == "r"
    (device,) = plan_claim(of_claim(permissions="r"), of_claim(environment={"A": "1"})).devices
    assert device.permissions == "r"
    assert plan_claim().devices[0].permissions == "rw"


def test_a_class_fixes_only_the_requests_that_it_is_for():
    fixed = opaque(config(permissions="r"), "FromClass", requests=["a"])
    first, second = plan_claim(
        fixed,
        opaque(config(permissions="rwm"), requests=["b"]),
        results=(result(FIRST, "a"), result(SECOND, "b")),
    ).devices
    assert (first.permissions, second.permissions) == ("r", "rwm")


@pytest.mark.parametrize(
    ("field", "value", "shape"),
    [
        ("environment", {"A": 1}, "an object whose values are text"),
        ("permissions", ["r"], "text"),
        ("claimsMaySet", "A", "a list of text"),
        ("capabilities", [1], "a list of text"),
        ("mps", 1, "text"),
    ],
)
def test_a_field_of_another_type_is_named_next_to_right_ones(field, value, shape):
    right = {
        "environment": {"A": "1"},
        "permissions": "r",
        "claimsMaySet": ["A"],
        "capabilities": ["video"],
        "mps": "/run/nvidia-mps",
    }
    assert set(right) == set(gpu_config.SHAPES)
    for others in ({}, right):
        with pytest.raises(errors.ClaimError, match=rf"class: {field} must be {shape}$"):
            plan_claim(of_class(**others | {field: value}))


def test_a_claim_cannot_leave_anything_to_claims():
    with pytest.raises(errors.ClaimError, match="claimsMaySet is for classes"):
        plan_claim(of_claim(claimsMaySet=["LD_PRELOAD"], environment={"LD_PRELOAD": "/x"}))


# ---------------------------------------------------------------------- budgets


def test_the_budget_of_variables_at_its_edge():
    """As many bytes as a claim may set over all its devices, and one more."""
    least = len("A") + gpu_config.VARIABLE_OVERHEAD
    size = budgets.ENVIRONMENT.limit // 2 - least
    both = (result(FIRST, "a"), result(SECOND, "b"))
    assert plan_claim(of_claim(environment={"A": "x" * size}), results=both).devices
    with pytest.raises(errors.ClaimError, match=f"{budgets.ENVIRONMENT} is the most"):
        plan_claim(of_claim(environment={"A": "x" * (size + 1)}), results=both)


def test_the_budget_of_how_many_variables_at_its_edge():
    """Over all configurations, also where they set the same ones again."""
    most = budgets.VARIABLES.limit
    half = of_claim(environment={f"V{i}": "" for i in range(most // 2)})
    assert plan_claim(half, half).devices
    with pytest.raises(errors.ClaimError, match=f"more than {budgets.VARIABLES}"):
        plan_claim(half, half, of_claim(environment={"V": ""}))


@pytest.mark.parametrize("name", worst_claims.REFUSED)
def test_the_worst_legal_claim_is_refused_quickly(name):
    """32 configurations of 10 KiB each for 128 devices: what the API lets anybody write."""
    configs = worst_claims.REFUSED[name]
    began = time.thread_time()
    with pytest.raises(errors.ClaimError, match="is the most"):
        plan_claim(*configs, results=worst_claims.RESULTS, gpus=128)
    assert time.thread_time() - began < 0.2  # 0.01 on an idle machine


@pytest.mark.parametrize("name", worst_claims.SERVED)
def test_a_full_budget_stays_small_on_disk(name):
    """The most that is served, on 128 devices with a request each and the longest names: a megabyte.
    A container runtime reads the spec at every start of a container: 350 kB took its library 22 ms.
    What it takes of the loop is in test_node_claims.
    """
    prepared = msgspec.structs.replace(
        plan_claim(*worst_claims.SERVED[name], results=worst_claims.RESULTS, gpus=128),
        name="c" * 253,
        namespace="n" * 63,
    )
    read = metadata.build(prepared, DRIVER, inventory(128), metadata.Published())
    mounts = metadata.MetadataFolder(Path("/plugin"), DRIVER, metadata.Published()).mounts(prepared)
    spec = cdi.build(prepared, inventory(128), metadata=mounts)
    kept = checkpoint.encode(checkpoint.Checkpoint(version=1, boot_id="b", claim=prepared))
    texts = [metadata.encode(document, 1) for document in read.values()]

    assert len(texts) == 128
    assert len(kept) + len(spec) + sum(len(text) for text in texts) < 1 << 20
    assert len(spec) < 500_000


def test_what_all_devices_have_is_said_once():
    value = "x" * 900
    prepared = plan_claim(
        of_claim(environment={"A": value}), results=worst_claims.RESULTS, gpus=128
    )
    assert cdi.build(prepared, inventory(128)).count(value.encode()) == 1


# ---------------------------------------------------------------------- text


@pytest.mark.parametrize(
    "character", ["\0", "\x07", "\r", "\x1b", "\x7f", "\x85", "\x9b", "\ufffe", "\ufeff"]
)
def test_a_value_that_no_runtime_could_read_is_refused(character):
    with pytest.raises(errors.ClaimError, match="cannot stand in a CDI spec"):
        plan_claim(of_claim(environment={"A": f"x{character}y"}))


@pytest.mark.sampled
@settings(max_examples=samples.share(300), deadline=None)
@given(value=st.text(max_size=60))
def test_whatever_is_taken_can_be_read_back_as_yaml(value):
    """Runtimes read specs as YAML, though we write JSON."""
    try:
        prepared = plan_claim(of_claim(environment={"A": value}))
    except errors.ClaimError:
        assert plain_text.strange(value) is not None
        return
    spec = yaml.safe_load(cdi.build(prepared, inventory(2)).decode())
    (device,) = spec["devices"]
    assert f"A={value}" in device["containerEdits"]["env"]


@pytest.mark.parametrize(
    "parameters",
    [
        "[" * 5000 + "]" * 5000,
        '{"apiVersion":"claimd.dev/v1alpha1","kind":"GpuConfig","environment":'
        + '{"a":' * 4000
        + "1"
        + "}" * 4001,
    ],
    ids=["lists", "objects"],
)
def test_parameters_nested_thousands_of_levels_deep(parameters):
    raw = OpaqueConfig(driver=DRIVER, parameters=msgspec.Raw(parameters.encode()))
    entry = DeviceAllocationConfiguration(source="FromClaim", opaque=raw)
    allocated = claim("c", result(FIRST))
    devices = msgspec.structs.replace(allocated.status.allocation.devices, config=[entry])
    allocation = msgspec.structs.replace(allocated.status.allocation, devices=devices)
    status = msgspec.structs.replace(allocated.status, allocation=allocation)
    # How many levels are too many for the parser depends on the Python.
    with pytest.raises(errors.ClaimError, match="not a GpuConfig|environment must be an object"):
        gpu_config.read_configs(msgspec.structs.replace(allocated, status=status), DRIVER)


def test_a_name_of_a_kind_is_told_on_one_line_and_briefly():
    with pytest.raises(errors.ClaimError) as caught:
        plan_claim(opaque({"apiVersion": "x\n" + "y" * 9000, "kind": "\x1b[31mGpuConfig"}))
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000


# ---------------------------------------------------------------------- a vendor's own


def of_nvidia(**fields):
    document = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", **fields}
    entry = opaque(document)
    entry["opaque"]["driver"] = "gpu.nvidia.com"
    return entry


def test_a_vendors_configuration_is_read_where_we_have_its_drivers_name():
    entries = [of_nvidia(), of_nvidia(sharing={"strategy": "TimeSlicing"})]
    configs = gpu_config.read_configs(claim("c", result(FIRST), config=entries), "gpu.nvidia.com")
    assert [(each.source, each.config.environment) for each in configs] == [("the claim", {})] * 2


def test_our_own_is_read_beside_it():
    entry = of_claim(environment={"A": "1"})
    entry["opaque"]["driver"] = "gpu.nvidia.com"
    (entry_config,) = gpu_config.read_configs(
        claim("c", result(FIRST), config=[entry]), "gpu.nvidia.com"
    )
    assert entry_config.config.environment == {"A": "1"}


def test_one_that_asks_for_more_is_refused_and_says_from_where():
    asked = claim("c", result(FIRST), config=[of_nvidia(sharing={"strategy": "MPS"})])
    with pytest.raises(errors.ClaimError, match="configuration from the claim: sharing by MPS"):
        gpu_config.read_configs(asked, "gpu.nvidia.com")


def test_under_our_own_name_a_vendors_is_refused():
    document = of_nvidia()["opaque"]["parameters"]
    with pytest.raises(errors.ClaimError, match="this driver takes GpuConfig of claimd.dev"):
        gpu_config.read_configs(claim("c", result(FIRST), config=[opaque(document)]), DRIVER)
