from pathlib import Path

import pytest

from claimd.common import errors, names

UID = "0b9b1c5e-6f0a-4d55-8e7f-0123456789ab"
KUBELET = Path("/var/lib/kubelet")
DRIVER = "gpu.claimd.dev"


def test_slices_sort_by_index():
    slice_names = [
        names.slice_name(index, DRIVER, "node-1") for index in (0, 1, 9, 10, 15, 16, 255)
    ]
    assert slice_names == sorted(slice_names)
    assert slice_names[0] == "00000-gpu.claimd.dev-node-1"


def test_a_long_slice_name_is_cut_and_stays_unique():
    first, second = (names.slice_name(0, DRIVER, "n" * 250 + tail) for tail in "ab")
    assert len(first) <= 253
    assert first != second


def test_a_name_is_cut_where_it_begins_to_be_too_long():
    assert names.shorten("a" * 20, 20) == "a" * 20
    cut = names.shorten("a" * 21, 20)
    assert len(cut) == 20
    assert cut.startswith("a" * 11 + "-")
    assert names.shorten("a" * 9 + ".-" + "b" * 20, 20).startswith("a" * 9 + "-"), "no .--"


def test_folders_that_outlive_the_process():
    ours = KUBELET / "plugins" / DRIVER
    assert names.plugin_folder(KUBELET, DRIVER) == ours
    assert names.metadata_folder(KUBELET, DRIVER) == ours / "metadata"


def test_sockets_without_and_with_a_pod():
    assert names.dra_socket(KUBELET, DRIVER, "") == KUBELET / "plugins" / DRIVER / "dra.sock"
    assert (
        names.registration_socket(KUBELET, DRIVER, "")
        == KUBELET / "plugins_registry" / f"{DRIVER}-reg.sock"
    )
    assert names.dra_socket(KUBELET, DRIVER, UID).name == f"dra-{UID}.sock"
    assert names.registration_socket(KUBELET, DRIVER, UID).name == f"{DRIVER}-{UID}-reg.sock"


def test_a_pods_uid_is_shortened_before_the_path_is_too_long():
    driver = "d" * 45
    path = names.registration_socket(KUBELET, driver, UID)
    assert len(bytes(path)) <= names.SOCKET_LIMIT
    assert UID not in path.name
    assert names.is_registration_socket(path.name, driver)


def test_too_long_a_path_shows_the_arithmetic():
    with pytest.raises(
        errors.UsageError,
        match=r"has 1\d\d bytes = \d+ \(folder\) \+ 1 \+ \d+ \(name\).*may have 107",
    ):
        names.dra_socket(Path("/" + "k" * 100), DRIVER, UID)


def test_the_limit_is_the_kernels():
    folder = "/" + "k" * (names.SOCKET_LIMIT - len(f"/plugins/{DRIVER}/dra.sock") - 1)
    assert len(bytes(names.dra_socket(Path(folder), DRIVER, ""))) == names.SOCKET_LIMIT
    with pytest.raises(errors.UsageError, match="by 1$"):
        names.dra_socket(Path(folder + "k"), DRIVER, "")


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        (f"{DRIVER}-reg.sock", True),
        (f"{DRIVER}-{UID}-reg.sock", True),
        (f"{DRIVER}-extra-reg.sock", False),
        (f"{DRIVER}-extra-{UID}-reg.sock", False),
        (f"other.{DRIVER}-reg.sock", False),
        ("gpuxclaimd.dev-reg.sock", False),
    ],
)
def test_only_our_registration_sockets_are_ours(name, ours):
    assert names.is_registration_socket(name, DRIVER) is ours


@pytest.mark.parametrize(
    ("name", "ours"),
    [("dra.sock", True), (f"dra-{UID}.sock", True), ("dra-x.sock", False), ("my.sock", False)],
)
def test_only_our_dra_sockets_are_ours(name, ours):
    assert names.is_dra_socket(name) is ours


def test_cdi_ids_carry_the_claim_and_the_share():
    assert names.cdi_id(UID, "gpu-0000-41-00-0", None) == f"claimd.dev/claim={UID}-gpu-0000-41-00-0"
    assert names.cdi_id(UID, "d", "s1") != names.cdi_id(UID, "d", "s2")


def test_variable():
    assert names.variable("gpu-0000-41-00-0") == "CLAIMD_GPU_0000_41_00_0"


def test_a_share_has_a_variable_of_its_own_for_each_capacity():
    share_id = "2f1c6d5e-0000-4000-8000-000000000000"
    assert names.share_variable("gpu-0", share_id, "memory") == "CLAIMD_GPU_0_2F1C6D5E_MEMORY"
    assert names.share_variable("gpu-0", share_id, "copyEngines").endswith("_COPY_ENGINES")


def test_files_in_the_cdi_folder():
    file = names.cdi_file(DRIVER, UID)
    assert file == f"claimd.dev-claim_{DRIVER}_{UID}.json"
    assert file.startswith(names.cdi_prefix(DRIVER))
    assert not file.startswith(names.cdi_prefix("gpu.claimd"))


def test_where_the_kubelet_tells_what_pods_have():
    assert names.pod_resources_socket(KUBELET) == KUBELET / "pod-resources/kubelet.sock"
