"""The bill of materials and the audit of what is shipped."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "deploy/supply.py"
LOCK = (ROOT / "requirements.txt").read_text()


def supply(*words, path=None):
    environment = {**os.environ, "PATH": path if path is not None else os.environ["PATH"]}
    command = [sys.executable, str(TOOL), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def written(tmp_path, text):
    file = tmp_path / "requirements.txt"
    file.write_text(text)
    return file


def test_what_is_shipped_is_in_order():
    done = supply("audit", ROOT / "requirements.txt", path="/nowhere")
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert "have one version each" in first
    assert second.startswith("what is installed is what is locked; licences: Apache-2.0, ")
    assert third == "known vulnerabilities were NOT looked for: pip-audit is not installed"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("h11==0.16.0", "h11>=0.16.0", "is no version with its hashes"),
        ("--hash=sha256:", "--hash=md5:", "is no version with its hashes"),
        ("h11==0.16.0", "h11==0.15.0", "h11 0.15.0 is locked, 0.16.0 installed"),
        ("h11==0.16.0", "h12==0.16.0", "h12 is not installed"),
    ],
)
def test_what_must_not_be_shipped(tmp_path, old, new, reason):
    assert old in LOCK
    done = supply("audit", written(tmp_path, LOCK.replace(old, new)), path="/nowhere")
    assert done.returncode == 1
    assert reason in done.stderr


def test_a_licence_that_nobody_has_looked_at(tmp_path):
    place = tmp_path / "site-packages/odd-1.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.4\nName: odd\nVersion: 1\nLicense: Odd\n")
    lock = written(tmp_path, f"odd==1 \\\n    --hash=sha256:{'0' * 64}\n")
    done = supply("audit", lock, "--site-packages", place.parent, path="/nowhere")
    assert (done.returncode, done.stderr) == (
        1,
        "supply: odd: the licence 'Odd' was not looked at\n",
    )


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ('{"dependencies": [{"name": "h11", "version": "0.16.0", "vulns": []}]}', 0, "no known"),
        (
            '{"dependencies": [{"name": "h11", "version": "0.16.0", "vulns": [{"id": "X-1"}]}]}',
            1,
            "known vulnerabilities: h11 0.16.0: X-1",
        ),
        ("", 0, "NOT looked for: pip-audit could not: no network"),
    ],
)
def test_what_pip_audit_says_is_heard(tmp_path, answer, code, words):
    program = tmp_path / "pip-audit"
    program.write_text(f"#!/bin/sh\necho 'no network' >&2\necho '{answer}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    done = supply("audit", ROOT / "requirements.txt", path=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == code
    assert words in done.stdout + done.stderr


def test_the_bill_of_materials_names_every_package_with_its_licence():
    done = supply("sbom", ROOT / "requirements.txt", "--version", "7")
    assert done.stdout == supply("sbom", ROOT / "requirements.txt", "--version", "7").stdout
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["version"] == "7"
    names = [line.split("==")[0] for line in LOCK.splitlines() if "==" in line]
    assert [part["name"] for part in bill["components"]] == names
    for part in bill["components"]:
        assert part["licenses"][0]["expression"]
        assert part["purl"] == f"pkg:pypi/{part['name']}@{part['version']}"


def test_an_images_bill_of_materials_names_what_dpkg_installed(tmp_path):
    status = tmp_path / "status"
    status.write_text(
        "Package: libc6\nStatus: install ok installed\nArchitecture: arm64\nVersion: 2.36-9+deb12u14\n"
        "Description: C library\n more words\n\n"
        "Package: perl-base\nStatus: deinstall ok config-files\nArchitecture: arm64\nVersion: 5\n"
    )
    plain = json.loads(supply("sbom", ROOT / "requirements.txt").stdout)
    bill = json.loads(supply("sbom", ROOT / "requirements.txt", "--dpkg", status).stdout)
    (added,) = [part for part in bill["components"] if part not in plain["components"]]
    assert added["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=arm64"
    assert added["properties"][0]["value"] == "/usr/share/doc/libc6/copyright"
    assert added["bom-ref"] in bill["dependencies"][0]["dependsOn"]
    assert bill["serialNumber"] != plain["serialNumber"]


def test_the_image_has_its_bill_of_materials():
    text = (ROOT / "deploy/Containerfile").read_text()
    assert "supply.py sbom /tmp/requirements.txt" in text
    assert "/opt/claimd/claimd.cdx.json" in text
