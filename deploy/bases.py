"""Updates the digests of the bases in a Containerfile: `python deploy/bases.py deploy/Containerfile`.

A base is a line `ARG NAME=IMAGE:TAG@sha256:…`. It gets the digest that the registry has for the tag
now, of the index of all platforms. Needs skopeo, and the way to the registry. If one digest cannot be
found out, the file stays as it is.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BASE = re.compile(r"^(ARG \w+=)([^\s@]+:[^\s@/:]+)@(sha256:[0-9a-f]{64})$", re.M)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Unknown(Exception):
    """A digest could not be found out."""


def main(file: Path) -> int:
    """Returns the exit status, and prints each base with its old and its new digest."""
    text = file.read_text()
    try:
        digests = {base[2]: current_digest(base[2]) for base in BASE.finditer(text)}
    except Unknown as reason:
        print(f"{file} is unchanged: {reason}", file=sys.stderr)
        return 1
    if not digests:
        print(f"{file} has no line ARG NAME=IMAGE:TAG@sha256:…", file=sys.stderr)
        return 1

    for base in BASE.finditer(text):
        image, old = base[2], base[3]
        new = digests[image]
        print(f"{image} has {new} still" if new == old else f"{image} had {old}, now has {new}")
    file.write_text(BASE.sub(lambda base: f"{base[1]}{base[2]}@{digests[base[2]]}", text))
    return 0


def current_digest(image: str) -> str:
    """Returns the digest that the registry has for an image with a tag. Raises Unknown."""
    command = ("skopeo", "inspect", "--format={{.Digest}}", f"docker://{image}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Unknown("skopeo, which asks the registry, is not installed") from None
    digest = done.stdout.strip()
    if done.returncode or not DIGEST.fullmatch(digest):
        raise Unknown(f"skopeo inspect docker://{image}: {done.stderr.strip() or digest}")
    return digest


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
