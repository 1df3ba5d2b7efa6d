"""A good node has no findings. Each thing that is broken has one, and nothing else has."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from claimd.node import config
from claimd.tools.doctor import api, drivers, examine, sight
from claimd.tools.doctor.check import Level
from claimd.tools.doctor.setting import find_place
from claimd_devices import fake, faults
from claimd_devices.gpu import Inventory
from tests.plugin.tools.doctor import test_api
from tests.support import doctor_node, host_process, samples
from tests.support.doctor_node import CONTAINERD, DRIVER

# What takes an API server to know.
WITHOUT_API = {
    *("kubelet-version", "runtime-version", "claims", "slices"),
    *(check.name for check in api.CHECKS),
}


@pytest.fixture
async def node():
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        async with doctor_node.serving(Path(folder)) as furnished:
            yield furnished


async def findings(node, environment=None):
    nobody = "no API server is known"
    return await examine.examine_node(
        node.settings, nobody, environment=environment or {}, second_look=0
    )


def not_well(results):
    return {
        (finding.check, finding.level.value) for finding in results if finding.level != Level.WELL
    }


UNSEEN = {(name, "not looked at") for name in WITHOUT_API}


async def test_nothing_is_said_of_a_node_that_is_well(node):
    results = await findings(node)
    assert not_well(results) == UNSEEN, [f for f in results if f.level != Level.WELL]


async def test_every_check_says_something(node):
    checks = {finding.check for finding in await findings(node)}
    assert checks == {check.name for check in examine.CHECKS}


def gone(path):
    def break_(node):
        place = node.root / path
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()

    return break_


def setting(**changes):
    return lambda node: node.set(**changes)


def with_containerd(old, new):
    return lambda node: node.containerd(CONTAINERD.format(cdi=node.cdi_dir).replace(old, new))


def silent(name):
    return lambda node: doctor_node.silence(node, name)


def unready(words):
    def break_(node):
        node.unready = words

    return break_


def without_claimd(node):
    node.set(endpoint="")
    doctor_node.silence(node, "dra.sock")
    doctor_node.silence(node, f"{DRIVER}-reg.sock")


def other_libraries(node):
    shutil.rmtree(node.root / "usr")
    (node.root / "etc/ld.so.cache").unlink()
    doctor_node.driver_layouts.write(node.root, "debian", version="570.10.01")


def without_uvm(node):
    devices = node.root / "proc/devices"
    lines = [line for line in devices.read_text().splitlines() if "nvidia-uvm" not in line]
    devices.write_text("\n".join(lines) + "\n")


def unbound(node):
    (node.root / "sys/bus/pci/devices/0000:11:00.0/driver").unlink()


def fault(kind, device, value=""):
    return lambda node: faults.inject(node.root, kind, device, value)


def deny_by_selinux(node):
    node.enforce_selinux("system_u:system_r:spc_t:s0")
    node.write(
        "var/log/audit/audit.log",
        'type=AVC msg=audit(1.2:3): avc:  denied  { write } for  comm="of old" name="cdi"\n'
        f"type=AVC msg=audit({time.time():.3f}:4): avc:  denied  {{ write }} for  pid=1 "
        'comm="claimd" name="cdi"\n',
    )


def with_switch(node):
    node.write("dev/nvidia-nvswitch0", "")
    node.write("dev/nvidia-nvswitchctl", "")
    host_process.write(node.root, 7, "/usr/bin/containerd")


ERROR, WARNING, NOTE = "error", "warning", "note"

# What is done to the node, and what has to be said: a check with its level, and words of the finding.
BROKEN = {
    "no registry": (
        gone("var/lib/kubelet/plugins_registry"),
        "kubelet-folder",
        ERROR,
        "there is no",
    ),
    "kubelet away": (
        gone("var/lib/kubelet/pod-resources/kubelet.sock"),
        "kubelet-answers",
        ERROR,
        "no kubelet runs with this folder",
    ),
    "not registered": (
        unready("the kubelet has not registered us yet"),
        "registered",
        ERROR,
        "has not registered us",
    ),
    "registration socket silent": (
        silent(f"{DRIVER}-reg.sock"),
        "dra-socket",
        ERROR,
        "registration socket",
    ),
    "dra socket silent": (silent("dra.sock"), "dra-socket", ERROR, "a DRA socket"),
    "claimd away": (without_claimd, "claimd-runs", ERROR, "nobody listens at"),
    "nobody at the endpoint": (
        setting(endpoint="unix:/nowhere/e.sock"),
        "claimd-runs",
        ERROR,
        "no answer at",
    ),
    "cdi off": (
        with_containerd("enable_cdi = true", "enable_cdi = false"),
        "cdi-enabled",
        ERROR,
        "enable_cdi = false",
    ),
    "no toml": (with_containerd("version = 3", "version ="), "cdi-enabled", ERROR, "config.toml: "),
    "other cdi folders": (
        lambda node: node.containerd(CONTAINERD.format(cdi="/run/other")),
        "cdi-folders",
        ERROR,
        "the runtime looks in /etc/cdi, /run/other",
    ),
    "no cdi folder": (gone("run/cdi"), "cdi-folder", ERROR, "there is no folder"),
    "no gpu": (setting(include=("0000:99:00.0",)), "gpus", NOTE, "there is no GPU"),
    "half a driver": (
        gone("sys/bus/pci/devices/0000:17:00.0/drm"),
        "gpus-left-alone",
        WARNING,
        "0000:17:00.0: not ready",
    ),
    "no kernel log": (
        lambda node: (node.root / "dev/kmsg").mkdir(),
        "kernel-log",
        NOTE,
        "Xid and SXid errors, resets that failed and hardware errors are not seen: ",
    ),
    "no driver": (unbound, "driver-loaded", ERROR, "0000:11:00.0: bound to no kernel driver"),
    "no uvm": (without_uvm, "nvidia-uvm", ERROR, "is not loaded"),
    "other libraries": (other_libraries, "driver-versions", ERROR, "are of 570.10.01"),
    "no libraries": (
        setting(nvidia_driver_root="/opt"),
        "driver-libraries",
        ERROR,
        "gpu-0000-11-00-0, gpu-0000-13-00-0: none are mounted",
    ),
    "no hook": (
        setting(library_hook_dir="/var/lib/nowhere"),
        "library-hook",
        WARNING,
        "/var/lib/nowhere/claimd-ld-cache is not there",
    ),
    "daemon-reload": (gone("dev/char/195:0"), "dev-char-links", WARNING, "/dev/nvidia0 (195:0)"),
    "kfd shut": (gone("sys/class/kfd"), "kfd", NOTE, "missing"),
    "sick": (fault("link", "gpu-0000-11-00-0", "4"), "gpu-health", WARNING, "4 of 16 lanes"),
    "wedged": (fault("wedge", "gpu-0000-11-00-0"), "gpu-health", ERROR, "failed: the GPU hangs"),
    "selinux": (
        lambda node: node.enforce_selinux("system_u:system_r:container_t:s0:c1,c2"),
        "selinux",
        ERROR,
        "container_t",
    ),
    "denials": (deny_by_selinux, "selinux-denials", WARNING, "1 in the last hour"),
    "no fabric manager": (
        with_switch,
        "fabric-manager",
        ERROR,
        "nv-fabricmanager does not run (NVSwitches: 1)",
    ),
    "iommu off": (setting(vfio_bind=("amd",)), "iommu", ERROR, "no IOMMU group"),
    "driver root": (
        setting(nvidia_driver_root="/run/nvidia/driver"),
        "driver-root",
        ERROR,
        "/run/nvidia/driver, which is not there",
    ),
    "long path": (
        setting(kubelet_dir=Path("/var/lib/" + "k" * 90)),
        "socket-path",
        ERROR,
        "socket path too long",
    ),
    "many files": (
        lambda node: node.runs_claimd(files=900),
        "open-files",
        WARNING,
        "900 files open, and may have 1024",
    ),
    "low limit": (lambda node: node.runs_claimd(limit=64), "open-files", WARNING, "may have 64"),
}
# What is not looked at besides, as it cannot be.
THEN_UNSEEN = {
    "kubelet away": {"kubelet-claims"},
    "no cdi folder": {"cdi-files"},
    "driver root": {"driver-libraries"},
    "long path": {"dra-socket", "kubelet-claims", "cdi-files", "open-files"},
    "no registry": {"dra-socket"},
    "claimd away": {"registered", "dra-socket", "open-files"},
    "dra socket silent": {"open-files"},
    "nobody at the endpoint": {"registered", "dra-socket"},
    "no toml": {"cdi-folders"},
    "other libraries": {"driver-libraries"},
}
# And what is broken by the same.
ALSO = {
    "iommu off": {("vfio-pci", ERROR)},
    "long path": {("kubelet-folder", ERROR), ("kubelet-answers", ERROR)},
}


async def test_gpus_for_virtual_machines_need_no_kfd(node):
    """KFD tells about the GPUs of amdgpu, which need not even be loaded without them."""
    for folder in ("sys", "proc", "dev"):
        shutil.rmtree(node.root / folder)
    fake.write(node.root, fake.parse(["amd:mi210", "iommu=1"]))
    fake.load_vfio(node.root)
    shutil.rmtree(node.root / "sys/class/kfd")
    node.set(vfio_bind=("amd",))
    found = {finding.check: finding for finding in await findings(node)}
    assert (found["kfd"].level, found["kfd"].seen) == (Level.WELL, "no GPU of AMD needs it")


async def test_a_variant_of_vfio_pci_that_is_not_loaded(node):
    fake.load_vfio(node.root)
    fake.add_vfio_variant(node.root, "10de:2330", "nvgrace_gpu_vfio_pci")
    node.set(vfio_bind=("nvidia",))
    found = {finding.check: finding for finding in await findings(node)}
    assert found["vfio-pci"].seen == "vfio-bind is set, and not loaded: nvgrace_gpu_vfio_pci"
    assert "modprobe -a nvgrace_gpu_vfio_pci" in found["vfio-pci"].remedy


async def test_a_pod_that_does_not_see_the_host_says_so(node):
    """The pod's own files are not the host's, so the host is neither good nor broken."""
    node.set(
        root="",
        sys_root=node.root / "sys",
        proc_root=node.root / "proc",
        dev_root=node.root / "dev",
        require_libraries="false",
    )
    results = await findings(node, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    unseen = {finding.check: finding for finding in results if finding.level is Level.UNSEEN}
    assert unseen.keys() == WITHOUT_API | {"cdi-enabled", "cdi-folders", "dev-char-links"}
    assert "deploy/doctor/pod.yaml on node-1" in unseen["cdi-enabled"].remedy
    broken = [finding for finding in results if finding.level in (Level.ERROR, Level.WARNING)]
    assert broken == []


async def test_a_pod_with_fake_gpus_runs_on_a_real_machine(node):
    """The other files of the fake tree are not the host's, and are not taken for them."""
    results = await findings(node, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    unseen = {finding.check for finding in results if finding.level is Level.UNSEEN}
    assert {"cdi-enabled", "cdi-folders", "dev-char-links"} <= unseen


def claimd_has_fakes(node, *, environ="", words="claimd run"):
    """The process of a claimd that has these fake GPUs at /fake, as /proc shows it."""
    folder = node.root / f"proc/{doctor_node.PROCESS}"
    (folder / "environ").write_bytes(environ.encode())
    (folder / "cmdline").write_bytes(words.replace(" ", "\0").encode() + b"\0")
    shutil.rmtree(folder / "root", ignore_errors=True)
    fake.write(folder / "root/fake", fake.parse(["nvidia:l4=3"]))
    node.set(
        root="",
        host_root=node.root,
        sys_root=node.root / "sys",
        proc_root=node.root / "proc",
        require_libraries="auto",
    )


@pytest.mark.parametrize(
    "claimd",
    [
        {"environ": "PATH=/bin\0CLAIMD_ROOT=/fake\0"},
        {"words": "python3 claimd run --root=/fake"},
        {"environ": "CLAIMD_ROOT=/elsewhere\0", "words": "claimd run --root /fake"},
    ],
)
async def test_the_fake_gpus_of_the_running_claimd_are_found(node, claimd):
    """Nobody says --root, and the GPUs of the machine are others."""
    claimd_has_fakes(node, **claimd)
    results = await findings(node)
    assert not_well(results) == UNSEEN, [f for f in results if f.level != Level.WELL]
    (gpus,) = [finding for finding in results if finding.check == "gpus"]
    assert gpus.seen == "3 GPUs and parts, which are fake"


@pytest.mark.parametrize("environ", ["", "CLAIMD_ROOT=\0", "CLAIMD_ROOT=/nowhere\0"])
async def test_a_claimd_with_real_gpus_has_no_fakes(node, environ):
    claimd_has_fakes(node, environ=environ)
    (gpus,) = [finding for finding in await findings(node) if finding.check == "gpus"]
    assert gpus.seen == "3 GPUs and parts"


async def test_a_pod_with_the_hosts_root_sees_all(node):
    """With deploy/components/nvidia the kubelet's folders are seen through the host's root only."""
    host = node.root
    node.set(
        root="",
        host_root=host,
        sys_root=host / "sys",
        proc_root=host / "proc",
        require_libraries="true",
    )
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert not_well(await findings(node, pod)) == UNSEEN

    # As hosts have it, where the link would lead to the pod's own folder.
    (node.root / "var/run").symlink_to("/run")
    (node.root / "run/of-this-host").mkdir()
    seen = sight.look_around(node.settings, pod)
    assert seen.place(Path("/var/run/of-this-host")) == node.root / "run/of-this-host"


@pytest.mark.parametrize("cgroup", [host_process.SERVICE, "/kubepods.slice/pod01234567/a"])
async def test_a_fabric_manager_runs(node, cgroup):
    """As a service of the host, or in the container of the driver."""
    with_switch(node)
    host_process.write(node.root, 8, "/usr/bin/nv-fabricmanager -c fm.cfg", cgroup=cgroup)
    assert not_well(await findings(node)) == UNSEEN


async def test_a_fabric_manager_of_a_tenant_does_not_count(node):
    with_switch(node)
    host_process.write(node.root, 8, "nv-fabricmanager", uids="1000 1000 1000 1000")
    assert ("fabric-manager", ERROR) in not_well(await findings(node))


def test_a_gpu_has_not_joined_the_fabric():
    """The switches may be where the host has no device of them."""
    facts = drivers.Facts(
        inventory=Inventory(gpus=(), skipped=()),
        vendors=frozenset(),
        driver_of={},
        unjoined=("gpu-0000-11-00-0",),
        has_fabric_manager=False,
    )
    (finding,) = [f for f in drivers.judge(facts, None, "") if f.check == "fabric-manager"]
    assert finding.seen == "nv-fabricmanager does not run (not joined: gpu-0000-11-00-0)"


async def test_a_fabric_manager_cannot_be_seen(node):
    node.write("dev/nvidia-nvswitch0", "")
    assert not_well(await findings(node)) == UNSEEN | {("fabric-manager", "not looked at")}


@pytest.mark.parametrize("name", samples.parameters([[name] for name in BROKEN]))
async def test_what_is_broken_is_named_and_nothing_else(node, name):
    break_, check, level, words = BROKEN[name]
    os.makedirs(node.root / "opt", exist_ok=True)
    break_(node)
    results = await findings(node)
    unseen = {(other, "not looked at") for other in THEN_UNSEEN.get(name, ())}
    assert not_well(results) == UNSEEN | unseen | {(check, level)} | ALSO.get(name, set())
    (finding,) = [
        finding for finding in results if finding.check == check and finding.level == level
    ]
    assert words in finding.seen
    assert finding.expected, "what would be well"
    assert finding.remedy, "what to do"


def test_each_check_of_a_node_has_a_test_in_which_it_fails():
    """The test is here, or with an API server, or on facts that a test cannot produce."""
    here = {check for _, check, _, _ in BROKEN.values()}
    besides = {name for pairs in ALSO.values() for name, _ in pairs}
    in_test_host = {"disk"}
    in_test_api = {
        *(
            "api-server",
            "api-version",
            "resource-api",
            "clock",
            "api-server-gates",
            "kubelet-gates",
        ),
        *(check for _, expected, _ in test_api.SITUATIONS for check, _ in expected),
    }
    tested = here | besides | in_test_host | in_test_api
    assert tested >= {check.name for check in examine.CHECKS}


def remedy(results, check):
    (text,) = [finding.remedy for finding in results if finding.check == check]
    return text


RESTART = (
    "kubectl -n claimd-system delete pod -l app.kubernetes.io/name=claimd "
    "--field-selector spec.nodeName=node-1"
)


async def test_a_kubelet_in_another_folder_is_named(node):
    """It is named even if claimd has made folders in the wrong one, with one remedy."""
    node.set(kubelet_dir=node.root / "var/lib/k0s/kubelet")
    node.unready = "the kubelet has not registered us yet"
    results = await findings(node)
    folder = f"{node.root}/var/lib/kubelet"
    right = f"    kubectl -n claimd-system set env daemonset/claimd CLAIMD_KUBELET_DIR={folder}"
    assert right in remedy(results, "kubelet-folder").splitlines()
    assert (
        remedy(results, "kubelet-answers") == "it follows from kubelet-folder: nothing to do here"
    )
    assert remedy(results, "registered") == "it follows from kubelet-answers: nothing to do here"

    (node.settings.kubelet_dir / "plugins_registry").mkdir(parents=True)
    (node.settings.kubelet_dir / f"plugins/{DRIVER}").mkdir(parents=True)
    assert right in remedy(await findings(node), "kubelet-answers").splitlines()


async def test_a_setting_is_changed_in_the_file_that_it_was_read_from(node):
    """A variable that overrides the file is changed instead. The path is absolute."""
    node.set(kubelet_dir=node.root / "var/lib/k0s/kubelet")
    steps = remedy(await findings(node, {"CLAIMD_CONFIG": "/etc/c.yaml"}), "kubelet-folder")
    assert steps.splitlines()[-4:] == [
        "in /etc/c.yaml on this node, for this node alone, set",
        f"    kubelet-dir: {node.root}/var/lib/kubelet",
        "then let claimd read it; pods that have a GPU keep running:",
        f"    {RESTART}",
    ]
    both = {"CLAIMD_CONFIG": "/etc/c.yaml", "CLAIMD_KUBELET_DIR": "/x"}
    steps = remedy(await findings(node, both), "kubelet-folder")
    assert "set env daemonset/claimd CLAIMD_KUBELET_DIR=" in steps
    assert "/etc/c.yaml" not in steps


def test_a_pod_knows_its_namespace_and_its_daemonset(tmp_path):
    (tmp_path / "namespace").write_text("gpus")
    settings = config.Config(service_account=tmp_path)
    pod = {"HOSTNAME": "claimd-h100-x7k2p"}
    variables = find_place(settings, pod, "", in_pod=True)
    assert "    kubectl -n gpus set env daemonset/claimd-h100 CLAIMD_SHARE='*=shares:2'\n" in (
        variables.steps_to_set("share", "*=shares:2")
    )
    file = find_place(settings, pod, "/etc/claimd/c.yaml", in_pod=True)
    assert file.steps_to_set("exclude", "amd").splitlines() == [
        "in what the pods have as /etc/claimd/c.yaml, for all nodes that have it, set",
        "    exclude: amd",
        "then let claimd read it; pods that have a GPU keep running:",
        "    kubectl -n gpus rollout restart daemonset/claimd-h100",
    ]


async def test_the_file_of_the_settings_is_named(node):
    node.set(kubelet_dir=node.root / "var/lib/k0s/kubelet")
    results = await examine.examine_node(
        node.settings, "nobody", environment={}, second_look=0, settings_file="/etc/claimd/c.yaml"
    )
    assert "in /etc/claimd/c.yaml on this node, for this node alone, set\n" in remedy(
        results, "kubelet-folder"
    )


@pytest.mark.parametrize("words", ["--root-dir=/opt/kubelet", "--v=2 --root-dir opt/kubelet"])
async def test_a_kubelet_says_its_folder_itself(node, words):
    node.set(kubelet_dir=node.root / "var/lib/k0s/kubelet")
    (node.root / "opt").mkdir()
    (node.root / "opt/kubelet").symlink_to(node.root / "var/lib/kubelet")
    host_process.write(node.root, 77, f"/usr/bin/kubelet {words}")
    results = await findings(node)
    (seen,) = [finding.seen for finding in results if finding.check == "kubelet-folder"]
    assert seen.endswith("the kubelet that runs here was started with --root-dir /opt/kubelet")
    assert "/opt/kubelet" not in remedy(results, "kubelet-folder")


async def test_a_kubelet_of_a_tenant_s_says_nothing(node):
    """Its folder has a socket at which it answers."""
    node.set(kubelet_dir=node.root / "var/lib/k0s/kubelet")
    shutil.rmtree(node.root / "var/lib/kubelet/pod-resources")
    node.write("tenant/pod-resources/any", "")
    node.listen(node.root / "tenant/pod-resources/kubelet.sock")
    host_process.write(node.root, 77, "kubelet --root-dir=/tenant", uids="65534 65534 65534 65534")
    results = await findings(node)
    assert not [finding for finding in results if "tenant" in f"{finding.seen} {finding.remedy}"]


async def test_a_process_that_calls_itself_claimd(node):
    """The claimd of the node is the process at the other end of its socket."""
    host_process.write(node.root, 1, "claimd run")
    node.write("proc/1/limits", "Max open files            1     1     files\n")
    assert not_well(await findings(node)) == UNSEEN


async def test_links_for_each_boot(node):
    """The remedy has lines for tmpfiles.d."""
    (node.root / "dev/char/195:0").unlink()
    assert remedy(await findings(node), "dev-char-links").splitlines()[:4] == [
        "on the node write these lines into /etc/tmpfiles.d/claimd-gpus.conf: they hold at each boot",
        "    L+ /dev/char/195:0 - - - - ../nvidia0",
        "and for now run, as root",
        "    systemd-tmpfiles --create /etc/tmpfiles.d/claimd-gpus.conf",
    ]


async def test_no_kubelet_anywhere(node):
    (node.kubelet_dir / "pod-resources/kubelet.sock").unlink()
    steps = remedy(await findings(node), "kubelet-answers")
    assert steps.startswith("on the node see `systemctl status kubelet`")
