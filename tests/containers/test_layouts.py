"""Programs in containers of every kind find the GPU and its libraries, wherever the driver lies."""

from __future__ import annotations

import itertools

import pytest

from tests.support import driver_layouts
from tests.support.driver_layouts import VERSION

from . import build, changes, images, machine, table
from .conftest import Write
from .machine import Job, Outcome, Run

LIBRARIES = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-nvvm.so.4")
NODES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
ALLOWED = ("opened", "no driver is behind it")  # behind the nodes of a fake GPU there is none


def every_way(runtime: str, image: str) -> list[Run]:
    ways = itertools.product((0, 1000), (False, True), (False, True))
    return [
        Run(image=image, runtime=runtime, user=user, read_only=read_only, user_namespace=namespace)
        for user, read_only, namespace in ways
    ]


def wrong_with(run: Run, outcome: Outcome, version: str = VERSION) -> list[str]:
    """Returns what a program in this container does not find as it should."""
    if outcome.code != 0:
        return [outcome.output.strip()[-300:]]
    wrong = []
    answers = outcome.answers
    for name in LIBRARIES:
        if answers.get(name) != f"loaded, cuInit 0, driver {version}":
            wrong.append(f"{name}: {answers.get(name)}")
    for name in NODES:
        if not answers.get(name, "").startswith(ALLOWED):
            wrong.append(f"{name}: {answers.get(name)}")
    if answers.get("TRITON_LIBCUDA_PATH") != "there":
        wrong.append("no libcuda where Triton is told to look")
    if run.image in ("debian", "rhel"):
        cached = {line.split()[0] for line in outcome.output.splitlines() if "=>" in line}
        wrong += [f"ldconfig does not know {name}" for name in LIBRARIES if name not in cached]
    return wrong


@pytest.mark.parametrize("name", driver_layouts.LAYOUTS)
def test_every_image_on_every_kind_of_node(layout: Write, runtime: str, name: str) -> None:
    runs = tuple(run for image in images.KINDS for run in every_way(runtime, image))
    job = Job(host=str(layout(name)), hook=str(build.hook()), runs=runs)
    failures = []
    for run, outcome in zip(runs, machine.run(job), strict=True):
        wrong = wrong_with(run, outcome)
        table.note(name, run, wrong)
        failures += [(run, wrong)] if wrong else []
    assert failures == []


def test_every_image_with_what_containerd_1_7_makes_of_the_spec(
    layout: Write, runtime: str
) -> None:
    """The library that merges CDI specs is an older one there.

    Without user namespaces: kubelets since 1.27 make none with it.
    """
    ways = [run for image in images.KINDS for run in every_way(runtime, image)]
    runs = tuple(run for run in ways if not run.user_namespace)
    job = Job(host=str(layout("operator")), hook=str(build.hook()), runs=runs, containerd="1.7")
    failures = []
    for run, outcome in zip(runs, machine.run(job), strict=True):
        wrong = wrong_with(run, outcome)
        table.note("operator, containerd 1.7", run, wrong)
        failures += [(run, wrong)] if wrong else []
    assert failures == []


def test_without_the_hook_loaders_find_them_all_the_same(layout: Write, runtime: str) -> None:
    """All but musl's, which looks neither in Debian's folders nor in those of others."""
    runs = tuple(Run(image=image, runtime=runtime) for image in images.KINDS)
    for run, outcome in zip(
        runs, machine.run(Job(host=str(layout("ubuntu")), runs=runs)), strict=True
    ):
        wrong = [text for text in wrong_with(run, outcome) if "ldconfig" not in text]
        if run.image == "musl":
            assert [text.split(":")[0] for text in wrong] == list(LIBRARIES)
        else:
            assert wrong == []


def test_a_driver_that_is_updated(layout: Write, runtime: str) -> None:
    """Containers that start then get the new one; nobody has to restart claimd."""
    host = layout("operator")
    new = changes.NEWER
    layout("operator", new, folder="new")
    job = Job(
        host=str(host),
        hook=str(build.hook()),
        runs=(Run(image="debian", runtime=runtime), Run(image="debian", runtime=runtime)),
        between=(
            f"rm -r /run/nvidia/driver && cp -a {host.parent}/new/run/nvidia /run/",
            f"printf 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  {new}  x' >"
            " /fake/proc/driver/nvidia/version",
        ),
    )
    before, after = machine.run(job)
    assert wrong_with(job.runs[0], before) == []
    assert wrong_with(job.runs[1], after, new) == []


@pytest.mark.parametrize("kind", ["nvidia.com/gpu", "k8s.device-plugin.nvidia.com/gpu"])
def test_a_spec_of_the_hosts(layout: Write, runtime: str, kind: str) -> None:
    """Checks that a container gets what the host's tools say, and not our mounts."""
    host = layout("rhel")
    files = [f"/usr/lib64/{name}" for name in LIBRARIES]
    for name in files:
        assert (host / name.lstrip("/")).exists()
    spec = host / f"etc/cdi/{kind.replace('/', '-')}.yaml"
    spec.parent.mkdir(parents=True)
    spec.write_text(driver_layouts.cdi_yaml(kind, [("0", "/dev/nvidia0")], files))
    run = Run(image="rhel", runtime=runtime)
    (outcome,) = machine.run(Job(host=str(host), hook=str(build.hook()), runs=(run,)))
    assert outcome.code == 0, outcome.output
    assert f"has it as {kind}=0" in outcome.libraries
    assert [outcome.answers[name] for name in LIBRARIES] == [
        f"loaded, cuInit 0, driver {VERSION}"
    ] * 4
    assert outcome.answers["TRITON_LIBCUDA_PATH"] == "nothing"


def test_capabilities(layout: Write, runtime: str) -> None:
    names = ("libnvcuvid.so.1", "libGLX_nvidia.so.0", "libGLX_indirect.so.0", "libnvoptix.so.1")
    command = ("/check", *names)
    runs = (
        Run(image="debian", runtime=runtime, command=command),
        Run(image="debian", runtime=runtime, command=command, capabilities=("video",)),
        Run(image="debian", runtime=runtime, command=command, capabilities=("video", "graphics")),
    )
    job = Job(host=str(layout("debian")), hook=str(build.hook()), runs=runs)
    loaded = [
        [name for name in names if outcome.answers[name].startswith("loaded")]
        for outcome in machine.run(job)
    ]
    assert loaded == [[], list(names[:1]), list(names)]


def test_the_images_newer_cuda_comes_before_the_hosts(layout: Write, runtime: str) -> None:
    """Checks also that an older one does not."""
    host = layout("ubuntu")
    runs = tuple(
        Run(image="debian", runtime=runtime, change=change, command=("/check", "libcuda.so.1"))
        for change in ("newer_cuda", "older_cuda")
    )
    newer, older = machine.run(Job(host=str(host), hook=str(build.hook()), runs=runs))
    assert newer.answers["libcuda.so.1"] == f"loaded, cuInit 0, driver {changes.NEWER}"
    assert older.answers["libcuda.so.1"] == f"loaded, cuInit 0, driver {VERSION}"


def test_the_check_that_people_run(layout: Write, runtime: str) -> None:
    """The example's program without arguments: everything that it was given, as a table."""
    run = Run(image="debian", runtime=runtime, command=("/check",))
    (outcome,) = machine.run(Job(host=str(layout("operator")), hook=str(build.hook()), runs=(run,)))
    answers = outcome.answers
    assert answers["CLAIMD_GPU_0000_11_00_0"] == "0000:11:00.0"
    assert answers["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert {name for name in answers if name.startswith("/dev/")} >= set(NODES)
    assert answers["libcuda.so.1"] == f"loaded, cuInit 0, driver {VERSION}"
    assert answers["TRITON_LIBCUDA_PATH"] == "there"

    # That the nodes of a fake GPU have no driver is all that it may complain of.
    well = [name for name in answers if answers[name].startswith("no driver is behind it")]
    assert outcome.output.splitlines()[-1] == f"not well: {len(well)} of these"
    assert outcome.code == 1
