"""Kubernetes' example driver of a release, with its demos, as its Go module has them; nothing of
it is kept here.
"""

import contextlib
import re
import subprocess
import time

from tests.clients.toolchains import built_by_go, newest, run, sources_of_go

MODULE, RELEASE = "sigs.k8s.io/dra-example-driver", "v0.4.0"
SECONDS = 60  # until what is waited for has to be so

# As `export` of bash shows the variables of a container.
VARIABLE = re.compile(r'^declare -x (\w+)="(.*)"$', re.MULTILINE)
GPU = re.compile(r"gpu-\d+(-partition-\d+|-full)?")


def until(find):
    """What `find` gives, once it gives something."""
    end = time.monotonic() + SECONDS
    while not (fact := find()):
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.05)
    return fact


def demo(name):
    """The file of a demo, or of one of its steps."""
    folder = sources_of_go(MODULE, RELEASE) / "demo/examples"
    return folder / (name if name.endswith(".yaml") else f"{name}/{name}.yaml")


def kubectl(cluster, *words):
    environment = {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(cluster.folder)}
    return run([newest("kubectl"), *map(str, words)], cluster.folder, **environment)


@contextlib.contextmanager
def program(command, cluster, log, *flags):
    """One of the driver's programs, beside the cluster, until the context ends."""
    binary = built_by_go(MODULE, RELEASE, f"./cmd/{command}")
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [str(word) for word in (binary, *flags)], env=cluster.environ, stdout=out, stderr=out
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()


@contextlib.contextmanager
def driven(cluster, *flags, profile="gpu"):
    """The driver on every node of the cluster, with what it is to say of devices in claims.

    It has published its devices, and there is the class that its chart makes.
    """
    name = f"{profile}.example.com"
    selector = {"cel": {"expression": f"device.driver == '{name}'"}}
    spec = {"selectors": [selector]}
    if profile == "gpu":
        spec["extendedResourceName"] = "example.com/gpu"
    cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": spec,
        }
    )
    with contextlib.ExitStack() as stack:
        for node in cluster.nodes.values():
            running = program(
                "dra-example-kubeletplugin",
                cluster,
                log_of(node),
                f"--node-name={node.name}",
                f"--cdi-root={node.cdi_dir}",
                f"--kubelet-registrar-directory-path={node.kubelet_dir}/plugins_registry",
                f"--kubelet-plugins-directory-path={node.kubelet_dir}/plugins",
                f"--device-profile={profile}",
                "--gpu-device-status",
                *flags,
            )
            process = stack.enter_context(running)
            until(lambda node=node, process=process: has_published(cluster, node, process))
        yield


def log_of(node):
    return node.folder / "driver.log"


def has_published(cluster, node, process):
    """Whether the node's pool is complete."""
    assert process.poll() is None, log_of(node).read_text()
    slices = [slice_["spec"] for slice_ in cluster.list("resourceslices")]
    pool = [spec["pool"] for spec in slices if spec.get("nodeName") == node.name]
    return bool(pool) and len(pool) == pool[0]["resourceSliceCount"]


def variables(cluster, namespace, place):
    """Of a container by `pod/container`, once it has printed them."""
    pod, container = place.split("/")

    def printed():
        logs = cluster.logs(pod, namespace, container)
        return logs if "declare -x PWD" in logs else ""  # which comes after those of devices

    cluster.wait(f"pod/{pod}", "Running", namespace=namespace, timeout=SECONDS)
    return dict(VARIABLE.findall(until(printed)))


def gpus(variables):
    """The names of devices among the variables of a container."""
    return {
        value
        for name, value in variables.items()
        if GPU.fullmatch(value) and name == f"GPU_DEVICE_{value[4:].upper().replace('-', '_')}"
    }


def claims(cluster, namespaces):
    return [
        claim for namespace in namespaces for claim in cluster.list("resourceclaims", namespace)
    ]


def results(claim):
    return claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])


def devices(claim):
    """What the claim has for itself: devices, and shares of them."""
    return [
        (result["pool"], result["device"], result.get("shareID"))
        for result in results(claim)
        if not result.get("adminAccess")
    ]
