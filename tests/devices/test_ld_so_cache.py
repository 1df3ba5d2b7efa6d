from __future__ import annotations

from pathlib import Path

import pytest

from claimd_devices import ld_so_cache
from claimd_devices.ld_so_cache import Entry
from tests.support.driver_layouts import ARM, I386, X86, cache

ONE = (X86, "libcuda.so.1", "/usr/lib64/libcuda.so.1")


@pytest.mark.parametrize("old", [False, True])
def test_entries(old: bool) -> None:
    other = (ARM, "libz.so.1", "/usr/lib/aarch64-linux-gnu/libz.so.1")
    content = cache(ONE, other, (I386, "liba.so", "/usr/lib/liba.so"), old=old)
    assert ld_so_cache.entries(content) == [
        Entry("libz.so.1", "/usr/lib/aarch64-linux-gnu/libz.so.1", "aarch64-linux-gnu"),
        Entry("libcuda.so.1", "/usr/lib64/libcuda.so.1", "x86_64-linux-gnu"),
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"glibc-ld.so.cache1.1",
        b"\xff" * 100,
        cache(ONE)[:-30],
        cache((X86, "../libcuda.so", "/x")),
        cache((X86, "libcuda.so", "relative")),
        cache(ONE).replace(b"\x48\0\0\0", b"\xff\xff\xff\x7f"),
    ],
)
def test_what_makes_no_sense(content: bytes) -> None:
    assert ld_so_cache.entries(content) == []


def test_the_machines_own() -> None:
    path = Path(ld_so_cache.PATH)
    if not path.exists():
        pytest.skip("this machine's loader has no cache")
    sonames = {entry.soname for entry in ld_so_cache.entries(path.read_bytes())}
    assert "libc.so.6" in sonames
