"""What a container's folder has: the configuration for launch.py, and files to look at."""

import json

from claimd.sim.runtime import cdi_cache, cdi_spec
from claimd.sim.runtime.bundle import Bundle, ContainerConfig

NODE = cdi_spec.DeviceNode(path="/dev/example/gpu1", type="c", major=195, minor=7)


def bundle(folder, *, namespace=False, **config):
    edits = cdi_cache.InjectedEdits(
        env=(("GPU", "one"), ("A", "cdi")),
        nodes=(NODE,),
        mounts=(cdi_spec.Mount(host_path="/lib/cdi.so", container_path="/usr/lib/cdi.so"),),
    )
    mounts = (cdi_spec.Mount(host_path="/srv/data", container_path="/data"),)
    config = ContainerConfig(name="main", command=("true",), mounts=mounts, **config)
    return Bundle(config, edits, folder, namespace=namespace)


def test_cdi_decides_about_a_variable_last(tmp_path):
    env = bundle(tmp_path, env={"A": "pod", "HOME": "/home"}, hostname="p").env
    assert (env["A"], env["GPU"], env["HOME"], env["HOSTNAME"]) == ("cdi", "one", "/home", "p")


def test_the_launcher_gets_the_mounts_of_the_pod_before_those_of_cdi(tmp_path):
    written = bundle(tmp_path / "c", namespace=True)
    written.write()
    config = json.loads(written.launch_file.read_text())
    assert [mount["target"] for mount in config["mounts"]] == ["/data", "/usr/lib/cdi.so"]
    assert config["nodes"] == [
        {"path": "/dev/example/gpu1", "type": "c", "major": 195, "minor": 7, "mode": 0o666}
    ]
    assert (config["hostname"], config["cwd"]) == ("main", str(tmp_path / "c"))
    assert not (tmp_path / "c/rootfs").exists()


def test_without_mounts_of_its_own_the_folder_shows_what_was_injected(tmp_path):
    written = bundle(tmp_path)
    written.write()
    written.write()  # a folder that exists is no problem
    assert (tmp_path / "rootfs/dev/example/gpu1").read_text() == "c 195:7 rwm\n"
    assert str((tmp_path / "rootfs/data").readlink()) == "/srv/data"
