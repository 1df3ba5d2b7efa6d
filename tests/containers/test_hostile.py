"""A hostile image has nothing of the machine's read, written or run."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from . import build, changes, machine
from .conftest import Write
from .machine import Job, Run
from .test_layouts import wrong_with

# What a container may miss by it is its own trouble, but it starts.
HARMED = {
    "libraries_lead_out": "the runtime mounts over what the link leads to, in the container",
    "cache_is_a_pipe": "its own loader waits for ever, so that only what is static runs in it",
}


def watched(layout: Write, **fields: object) -> Job:
    host = layout("ubuntu")
    secret = host / changes.SECRET.lstrip("/")
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.write_text("secret")
    (host / changes.FOLDER.lstrip("/")).mkdir()
    shutil.copy(host / "etc/ld.so.cache", host / changes.FOLDER.lstrip("/"))
    caches = ("/etc/ld.so.cache", f"{changes.FOLDER}/ld.so.cache")
    then = (changes.SECRET, changes.TRAP, *caches, "/etc/.claimd-ld-cache")
    return Job(host=str(host), hook=str(build.hook()), then=then, **fields)  # type: ignore[arg-type]


def check_untouched(job: Job, outcome: machine.Outcome) -> None:
    cache = Path(job.host, "etc/ld.so.cache").read_bytes().decode("latin-1")
    assert outcome.files == {
        changes.SECRET: "secret",
        changes.TRAP: "missing",
        "/etc/ld.so.cache": cache,
        f"{changes.FOLDER}/ld.so.cache": cache,
        "/etc/.claimd-ld-cache": "missing",
    }


@pytest.mark.parametrize("change", changes.HOSTILE)
@pytest.mark.parametrize("user_namespace", [False, True])
def test_an_image(layout: Write, runtime: str, change: str, user_namespace: bool) -> None:
    run = Run(image="debian", runtime=runtime, change=change, user_namespace=user_namespace)
    if change == "cache_is_a_pipe":
        run = replace(run, command=("/static", "--version"))
    job = watched(layout, runs=(run,))
    (outcome,) = machine.run(job)
    check_untouched(job, outcome)
    assert "secret" not in outcome.output
    assert outcome.code == 0, outcome.output
    if change not in HARMED:
        wrong = [text for text in wrong_with(run, outcome) if "ldconfig" not in text]
        assert wrong == []


@pytest.mark.parametrize("variable", ["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"])
def test_variables_of_the_image(layout: Write, runtime: str, variable: str, tmp_path: Path) -> None:
    """A hook that inherits them would load the library, as the container itself does."""
    source = tmp_path / "trap.c"
    source.write_text(
        "#include <fcntl.h>\n#include <unistd.h>\n"
        "__attribute__((constructor)) static void spring(void) {\\n"
        f'    close(open("{changes.TRAP}", O_CREAT | O_WRONLY, 0600));\\n'
        "}\nunsigned la_version(unsigned version) { return version; }\n".replace("\\n", "\n")
    )
    trap = tmp_path / "trap.so"
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", trap], check=True)
    value = {"LD_LIBRARY_PATH": "."}.get(variable, "./trap.so")
    run = Run(
        image="debian",
        runtime=runtime,
        environment=("PATH=/bin", f"{variable}={value}"),
        change=f"library:{trap}",
    )
    job = watched(layout, runs=(run,))
    (outcome,) = machine.run(job)
    assert outcome.code == 0, outcome.output
    check_untouched(job, outcome)


def test_a_volume_at_etc_is_left_alone(layout: Write, runtime: str) -> None:
    """Whoever mounts a folder of the machine there does not have it changed by us."""
    run = Run(image="debian", runtime=runtime, volume="/etc")
    job = watched(layout, runs=(run,))
    (outcome,) = machine.run(job)
    assert outcome.code == 0, outcome.output
    check_untouched(job, outcome)
