"""Tests of the image's bases: everything in the build is fixed by a digest or a hash."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CONTAINERFILE = ROOT / "deploy/Containerfile"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
OLD, NEW = f"sha256:{'0' * 64}", f"sha256:{'1' * 64}"
TEXT = f"""ARG BASE=registry.example:5000/python:3.11-slim@{OLD}
ARG OTHER=docker.io/library/gcc:12@{OLD}
ARG VERSION=""
FROM ${{BASE}}
"""


def instructions():
    """Returns the instructions of the Containerfile, each in one line, without comments."""
    lines = [line for line in CONTAINERFILE.read_text().splitlines() if not line.startswith("#")]
    return [line for line in "\n".join(lines).replace("\\\n", "").splitlines() if line.strip()]


def test_each_stage_starts_from_a_base_with_a_digest():
    bases = dict(re.findall(r"^ARG (\w+)=(\S+:\S+)$", "\n".join(instructions()), re.M))
    assert set(bases) == {"BASE", "COMPILER"}
    for name, base in bases.items():
        assert DIGEST.fullmatch(base.partition("@")[2]), f"{name} is not fixed by a digest"

    stages = [line.split() for line in instructions() if line.startswith("FROM ")]
    assert {stage[1] for stage in stages} == {"${BASE}", "${COMPILER}", "scratch"}
    # A COPY may take files from another image, too, and a RUN may mount one.
    names = {stage[3] for stage in stages if len(stage) > 2}
    taken = re.findall(r"\bfrom=([^\s,]+)", "\n".join(instructions()))
    assert taken
    assert set(taken) <= names


def test_nothing_is_installed_without_a_hash():
    """Checks the commands of the build: whatever a package index has today must not get in."""
    commands = [line for line in instructions() if line.startswith("RUN ")]
    text = "\n".join(commands)
    assert not re.search(r"(?<![\w/.-])(apt|apt-get|aptitude|apk|dnf|yum|curl|wget|git)\s", text)
    steps = [step.strip() for line in commands for step in line[4:].split("&&")]
    installed = [step for step in steps if re.match(r"\S*pip\s", step)]
    assert len(installed) == 4
    for step in installed:
        assert "--require-hashes" in step or "--no-deps" in step, step


@pytest.fixture
def renew(tmp_path):
    """Returns a function that runs the command with a skopeo that prints these words."""

    def run(answer, text=TEXT, status=0):
        file, program = tmp_path / "Containerfile", tmp_path / "skopeo"
        file.write_text(text)
        words = f'echo "$3" >> {tmp_path}/asked; echo "{answer}"; exit {status}'
        program.write_text(f"#!/bin/sh\n{words}\n")
        program.chmod(0o755)
        return call(file, str(tmp_path)), file.read_text()

    return run


def call(file, path):
    command = [sys.executable, str(ROOT / "deploy/bases.py"), str(file)]
    environment = os.environ | {"PATH": path}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_the_digests_are_renewed(renew, tmp_path):
    done, text = renew(NEW)
    assert (done.returncode, done.stderr) == (0, "")
    assert text == TEXT.replace(OLD, NEW)
    assert f"docker.io/library/gcc:12 had {OLD}, now has {NEW}" in done.stdout
    asked = (tmp_path / "asked").read_text().split()
    assert asked == [
        "docker://registry.example:5000/python:3.11-slim",
        "docker://docker.io/library/gcc:12",
    ]


def test_the_bases_of_the_image_can_be_renewed(renew):
    done, text = renew(NEW, CONTAINERFILE.read_text())
    assert done.returncode == 0
    assert DIGEST.findall(text) == [NEW, NEW]
    assert DIGEST.sub("", text) == DIGEST.sub("", CONTAINERFILE.read_text())


@pytest.mark.parametrize(
    ("answer", "status"), [("no such host", 1), ("", 0), (NEW[:-1], 0), (f"{NEW}\nmore", 0)]
)
def test_an_answer_that_is_no_digest_changes_nothing(renew, answer, status):
    done, text = renew(answer, status=status)
    assert (done.returncode, text) == (1, TEXT)
    assert "is unchanged: skopeo inspect docker://registry.example" in done.stderr


def test_a_file_without_bases_and_a_machine_without_skopeo(renew, tmp_path):
    done, _ = renew(NEW, "FROM scratch\n")
    assert (done.returncode, "has no line ARG" in done.stderr) == (1, True)
    file = tmp_path / "Containerfile"
    file.write_text(TEXT)
    done = call(file, "/nowhere")
    assert (done.returncode, "skopeo, which asks the registry" in done.stderr) == (1, True)
