"""What claimd is made of: `sbom` writes it down, `audit` looks for what is wrong with it.

    python deploy/supply.py sbom requirements.txt [--site-packages DIR] [--dpkg STATUS] > claimd.cdx.json
    python deploy/supply.py audit requirements.txt

Needs nothing but Python, since the image is built with it. The lock file says which packages there
are and their hashes, the installed packages say their licences.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

# Licences that may be linked and handed on with ours, which is Apache-2.0.
ALLOWED = {
    "Apache-2.0",
    "BSD-3-Clause",
    "LGPL-2.1-or-later",
    "MIT",
    "PSF-2.0",
}
# As packages wrote them before there were expressions.
_OLD_NAMES = {"3-Clause BSD License": "BSD-3-Clause"}
# Packages whose metadata names no licence: read from the text that they bring.
_READ_BY_US = {"google-re2": "BSD-3-Clause"}

_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*([^\\]+?))?\s*\\?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")


@dataclass(frozen=True, kw_only=True)
class Package:
    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name.lower()}@{self.version}"


class Wrong(Exception):
    """Something that must not be shipped."""


def locked(text: str) -> list[Package]:
    """The packages of a lock file; Wrong for a line that is no pin with hashes."""
    packages = []
    entries = re.split(r"\n(?=\S)", text.strip())
    for entry in entries:
        if entry.startswith("#"):
            continue
        pin = _PIN.match(entry)
        hashes = _HASH.findall(entry)
        if pin is None or not hashes:
            raise Wrong(f"{entry.splitlines()[0]!r} is no version with its hashes")
        packages.append(Package(name=pin[1], version=pin[2], hashes=tuple(sorted(hashes))))
    return packages


def licence(package: Package, site_packages: Sequence[str]) -> str:
    """As an SPDX expression; Wrong if the package is not installed, or in another version."""
    found = importlib.metadata.distributions(name=package.name, path=list(site_packages))
    for distribution in found:
        if distribution.version != package.version:
            wanted = f"{package.name} {package.version}"
            raise Wrong(f"{wanted} is locked, {distribution.version} installed: make dev")
        metadata = distribution.metadata
        written = metadata.get("License-Expression") or metadata.get("License")
        if not written:
            return _READ_BY_US.get(package.name, "")
        return _OLD_NAMES.get(written, written)
    raise Wrong(f"{package.name} is not installed: make dev")


def debian(status: str) -> list[dict[str, object]]:
    """What is installed by dpkg's own list. Licences are in the file that each package brings."""
    components: list[dict[str, object]] = []
    for paragraph in status.strip().split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", paragraph, re.M))
        if fields.get("Status") != "install ok installed":
            continue
        name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
        purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={architecture}"
        place = f"/usr/share/doc/{name}/copyright"
        components.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
                "properties": [{"name": "claimd:copyright", "value": place}],
            }
        )
    return components


def sbom(
    text: str, version: str, site_packages: Sequence[str], status: str = ""
) -> dict[str, object]:
    """A bill of materials in CycloneDX 1.5: of a lock file and, for an image, of dpkg's list. The
    same two give the same bytes.
    """
    components: list[dict[str, object]] = []
    for package in locked(text):
        components.append(
            {
                "type": "library",
                "bom-ref": package.purl,
                "name": package.name,
                "version": package.version,
                "purl": package.purl,
                "licenses": [{"expression": licence(package, site_packages)}],
                # Of every file that may be installed for this version, one a platform.
                "properties": [
                    {"name": "claimd:sha256", "value": digest} for digest in package.hashes
                ],
            }
        )
    components += debian(status)
    ours = f"pkg:generic/claimd@{version}"
    made_of = hashlib.sha256(f"{ours}\n{text}{status}".encode())
    serial = uuid.uuid5(uuid.NAMESPACE_URL, made_of.hexdigest())
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": ours,
                "name": "claimd",
                "version": version,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": components,
        "dependencies": [{"ref": ours, "dependsOn": [part["bom-ref"] for part in components]}],
    }


def audit(file: Path, site_packages: Sequence[str]) -> Iterator[str]:
    """What was checked, a line each; Wrong for what is wrong."""
    packages = locked(file.read_text())
    count = sum(len(package.hashes) for package in packages)
    yield f"{len(packages)} packages have one version each, with {count} hashes"

    licences = {}
    for package in packages:
        licences[package.name] = licence(package, site_packages)
        if licences[package.name] not in ALLOWED:
            raise Wrong(f"{package.name}: the licence {licences[package.name]!r} was not looked at")
    yield f"what is installed is what is locked; licences: {', '.join(sorted(set(licences.values())))}"
    yield _known_vulnerabilities(file)


def _known_vulnerabilities(file: Path) -> str:
    """By pip-audit, if it is there and reaches its data; Wrong for what it finds."""
    command = ["pip-audit", "--disable-pip", "--require-hashes", "-r", str(file), "-f", "json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except FileNotFoundError:
        return "known vulnerabilities were NOT looked for: pip-audit is not installed"
    except subprocess.TimeoutExpired:
        return "known vulnerabilities were NOT looked for: pip-audit did not end within two minutes"

    try:
        dependencies = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return f"known vulnerabilities were NOT looked for: pip-audit could not: {reason}"
    found = []
    for dependency in dependencies:
        for vulnerability in dependency.get("vulns", ()):
            found.append(f"{dependency['name']} {dependency['version']}: {vulnerability['id']}")
    if found:
        raise Wrong(f"known vulnerabilities: {', '.join(found)}")
    return "no known vulnerabilities, says pip-audit"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("verb", choices=("sbom", "audit"))
    parser.add_argument("requirements", type=Path)
    parser.add_argument("--site-packages", default="", help="default: those of this Python")
    parser.add_argument("--dpkg", type=Path, help="dpkg's list, of an image: its packages as well")
    parser.add_argument("--version", default="0", help="claimd's, for the bill of materials")
    arguments = parser.parse_args()

    site_packages = [arguments.site_packages] if arguments.site_packages else sys.path
    try:
        if arguments.verb == "sbom":
            text = arguments.requirements.read_text()
            status = arguments.dpkg.read_text() if arguments.dpkg else ""
            print(json.dumps(sbom(text, arguments.version, site_packages, status), indent=1))
        else:
            for line in audit(arguments.requirements, site_packages):
                print(line)
    except (Wrong, OSError) as error:
        print(f"supply: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
