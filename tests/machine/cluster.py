"""A real one-node cluster whose node is a guest with cgroup v2.

The binaries are those of tests/cluster/rig. The control plane runs here, because it needs no kernel
of its own. The guest has this machine's files, and runs the container runtime and the kubelet. Its
GPUs are emulated, and claimd's pod gives them to pods for virtual machines.
"""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from tests.cluster import driver
from tests.cluster.kubectl import Kubectl
from tests.cluster.rig import control_plane, daemons, images, node, packages, places

from . import agent, guest, kernel

CHOICES = places.Choices(whole_machine=True)
OVERLAY = Path(__file__).with_name("overlay")
KUBELET_PORT = 10250
RUNTIME = places.STATE / "containerd"

# The kubelet and the runtime need an ordinary file system.
FOLDERS = (places.KUBELET_ROOT, RUNTIME)
MODULES = (
    *(*kernel.BOOT_MODULES, "9p", "9pnet_virtio", "overlay", "veth"),
    *("vfio-pci", "vfio_iommu_type1"),
)

# The daemons outlive each program of the agent. They reach the API server by the address that its
# certificate and the kubernetes service have.
START_NODE = """
import os, socket, sys
import agent
os.environ.update({environment!r})
sys.path.insert(0, {root!r})
from tests.cluster.rig import images, node
from tests.cluster.rig.places import Choices

def dial():
    return socket.create_connection(({host!r}, {port}))

kept["relay"] = agent.Relay(socket.create_server(({address!r}, 443), backlog=64), dial)
choices = Choices.saved()
node.start_runtime(choices)
if {is_new}:
    images.load_own()
    images.load_archive({archive!r})
node.start_kubelet(choices)
node.wait_until_healthy()
"""


def is_another_up() -> bool:
    """Returns True if the rig runs a cluster, whose state and addresses this one would take."""
    return daemons.pid_of("apiserver") is not None


class Cluster:
    """The cluster, from its start until `down`."""

    def __init__(self, machine: guest.Guest) -> None:
        self.guest = machine
        self.kube = Kubectl(kubeconfig=places.STATE / "admin.kubeconfig")
        self.driver = driver.Driver(kube=self.kube.within(driver.NAMESPACE), node=places.NODE)
        self._archive = Path()
        self._relay: agent.Relay | None = None
        self._port = 0

    def up(self) -> None:
        """Starts all of it, and returns when claimd's pod is ready."""
        packages.install()
        os.environ["PATH"] = f"{places.kube_binary('', CHOICES.kube)}:{os.environ['PATH']}"
        control_plane.up(CHOICES)
        node.add_node_to_hosts()
        self._archive = images.save(kernel.ROOT, kernel.ROOT / "deploy/Containerfile", places.IMAGE)
        server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._port = server.getsockname()[1]
        self._relay = agent.Relay(
            server, lambda: socket.create_connection((places.API_ADDRESS, 443))
        )
        self.guest.start()
        self.guest.forward_port(KUBELET_PORT)
        self._start_node(is_new=True)
        self.driver.kube("apply", "--server-side", f"--kustomize={OVERLAY}")
        self.wait_for_claimd()

    def down(self) -> None:
        """Stops all of it."""
        self.guest.kill()
        if self._relay is not None:
            self._relay.close()
        control_plane.down()
        shutil.rmtree(places.STATE, ignore_errors=True)

    def reboot(self) -> None:
        """Resets the guest, and starts its daemons again."""
        self.guest.run("sync", check=True)
        self.guest.reboot()
        self._start_node(is_new=False)

    def _start_node(self, *, is_new: bool) -> None:
        # A reboot must empty this folder. On a usual node it is in /run, which is a tmpfs.
        state = RUNTIME / "state"
        self.guest.run(f"mkdir -p {state} && mount -t tmpfs state {state}", check=True)
        environment = {
            "RIG_CACHE": str(places.CACHE),
            "RIG_STATE": str(places.STATE),
            "RIG_NODE": places.NODE,
        }
        program = START_NODE.format(
            environment=environment,
            root=str(kernel.ROOT),
            host=guest.HOST,
            port=self._port,
            address=places.API_ADDRESS,
            is_new=is_new,
            archive=str(self._archive),
        )
        self.guest.python(program, timeout=200)

    def restart_daemons(self) -> None:
        """Restarts the runtime and the kubelet. Their containers go on."""
        self.guest.python(
            "from tests.cluster.rig import daemons, node\n"
            "from tests.cluster.rig.places import Choices\n"
            "daemons.stop('kubelet')\n"
            "node.restart_runtime(Choices.saved())\n"
            "node.start_kubelet(Choices.saved())\n"
            "node.wait_until_healthy()\n",
            timeout=200,
        )

    def wait_for_claimd(self) -> None:
        self.kube(
            *(f"--namespace={driver.NAMESPACE}", "rollout", "status", "daemonset/claimd"),
            "--timeout=150s",
            seconds=180,
        )
