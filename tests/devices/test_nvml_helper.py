"""The script, run as a process, with libraries that answer and libraries that misbehave."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from claimd_devices import nvml_helper
from tests.support import nvml_stub


def run(library: Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", "-S", nvml_helper.__file__, str(library)]
    return subprocess.run(command, capture_output=True, check=False, env={}, timeout=30)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return tmp_path / "libnvidia-ml.so.1"


def answer(library: Path) -> Any:
    done = run(library)
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


def test_what_it_prints(library: Path) -> None:
    """The third GPU is lost and does not affect others. The library's own output is discarded."""
    nvml_stub.build(library)
    part = {
        "gpu_instance": 7,
        "compute_instance": 0,
        "uuid": "MIG-00000007-0000-0000-0000-000000000000",
        "profile": "1g.10gb+me",
        "multiprocessors": 14,
        "memory": 9728 << 20,
    }
    assert answer(library) == {
        "gpus": [
            {"address": "0000:11:00.0", "mig": True, "parts": [part]},
            {"address": "0000:13:00.0", "mig": False, "parts": []},
        ]
    }


@pytest.mark.parametrize("name", ["1c.3g.40gb", "7g.80gb", "1g.5gb", "2g.24gb+gfx", "1g.24gb-me"])
def test_names_of_profiles(library: Path, name: str) -> None:
    nvml_stub.build(library, parts=f'{{1, 0, "{name}", 14, 9728}},')
    assert answer(library)["gpus"][0]["parts"][0]["profile"] == name


def test_a_name_of_another_form_is_left_out(library: Path) -> None:
    nvml_stub.build(library, parts='{1, 0, "Device", 14, 9728},')
    assert "profile" not in answer(library)["gpus"][0]["parts"][0]


def test_mig_is_off(library: Path) -> None:
    nvml_stub.build(library, mig_on=0)
    assert answer(library)["gpus"][0] == {"address": "0000:11:00.0", "mig": False, "parts": []}


def test_a_library_without_a_function_answers_the_rest(library: Path) -> None:
    nvml_stub.build(library, "WITHOUT_ATTRIBUTES")
    (part,) = answer(library)["gpus"][0]["parts"]
    assert part["profile"] == "1g.10gb+me"
    assert "memory" not in part


def test_a_gpu_that_cannot_be_asked_is_left_out(library: Path) -> None:
    nvml_stub.build(library, "OLD")
    assert "0000:11:00.0" not in [gpu["address"] for gpu in answer(library)["gpus"]]


def test_what_went_wrong(library: Path) -> None:
    nvml_stub.build(library, init="9")
    assert answer(library) == {"error": "nvmlInit_v2: error 9"}
    library.write_text("no library at all\n" * 100)
    assert "invalid ELF header" in answer(library)["error"]


def test_a_library_of_something_else(library: Path) -> None:
    source = "int cuInit(void) { return 0; }"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)
    assert answer(library) == {"error": "nvmlInit_v2: missing"}


@pytest.mark.parametrize("where", ["init", "parts"])
def test_a_crash_is_its_own(library: Path, where: str) -> None:
    nvml_stub.build(library, crashes_in=where)
    done = run(library)
    assert (done.returncode < 0, done.stdout) == (True, b"")
