"""Triton's own look-up of libcuda, which goes by ldconfig unless it is told otherwise."""

from __future__ import annotations

import subprocess

import pytest

from . import build, images, machine, table
from .conftest import Write
from .machine import Job, Outcome, Run

ASK = """
import os, sys
if len(sys.argv) > 1:
    os.environ.pop("TRITON_LIBCUDA_PATH")
sys.path.insert(0, "/opt/triton")
from triton.backends.nvidia import driver
print("found:", driver.libcuda_dirs()[0])
print("link:", os.path.exists(driver.libcuda_dirs()[0] + "/libcuda.so"))
"""


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    try:
        images.folder("triton")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no image with Triton: {error}")


def asked(host: str, runtime: str, *, hook: bool, told: bool) -> Outcome:
    command = ("/usr/bin/python3.11", "-c", ASK, *(() if told else ("by ldconfig",)))
    run = Run(image="triton", runtime=runtime, user=1000, command=command)
    job = Job(host=host, hook=str(build.hook()) if hook else "", runs=(run,))
    (outcome,) = machine.run(job)
    return outcome


@pytest.mark.parametrize("told", [True, False])
def test_triton_finds_libcuda(layout: Write, runtime: str, told: bool) -> None:
    outcome = asked(str(layout("operator")), runtime, hook=True, told=told)
    is_found = outcome.answers.get("found") == "/usr/lib/x86_64-linux-gnu"
    run = Run(image="triton", runtime=runtime, user=1000)
    table.note("operator", run, [] if is_found else [outcome.output[-200:]])
    assert outcome.code == 0, outcome.output
    assert outcome.answers["found"] == "/usr/lib/x86_64-linux-gnu"
    assert outcome.answers["link"] == "True"


def test_without_the_hook_it_has_to_be_told(layout: Write, runtime: str) -> None:
    host = str(layout("operator"))
    assert asked(host, runtime, hook=False, told=True).code == 0
    outcome = asked(host, runtime, hook=False, told=False)
    assert "libcuda.so cannot found!" in outcome.output
