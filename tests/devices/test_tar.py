"""Tar files of other programs, and malformed ones."""

from __future__ import annotations

import io
import tarfile

import pytest

from claimd_devices import tar


def write_tar(format_: int, *entries: tuple[str, bytes, str, bytes]) -> bytes:
    """Returns a tar file with these names, types, targets and contents."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format_) as archive:
        for name, kind, target, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, target, len(content)
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


FORMATS = pytest.mark.parametrize(
    "format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
)
LONG = "/".join(["sys"] + ["devices"] * 12 + ["card0"])  # more than 100 characters


@FORMATS
def test_what_the_library_writes_is_read_as_the_library_reads_it(format_: int) -> None:
    data = write_tar(
        format_,
        ("sys", tarfile.DIRTYPE, "", b""),
        ("sys/file", tarfile.REGTYPE, "", b"x" * 513),
        ("sys/empty", tarfile.REGTYPE, "", b""),
        ("sys/link", tarfile.SYMTYPE, "../proc", b""),
        (LONG, tarfile.REGTYPE, "", b"content"),
        ("sys/ünïcode", tarfile.REGTYPE, "", b""),
        ("sys/pipe", tarfile.FIFOTYPE, "", b""),
    )
    entries = [(entry.name, entry.kind, entry.content, entry.target) for entry in tar.entries(data)]
    assert entries == [
        ("sys", tar.FOLDER, b"", ""),
        ("sys/file", tar.FILE, b"x" * 513, ""),
        ("sys/empty", tar.FILE, b"", ""),
        ("sys/link", tar.LINK, b"", "../proc"),
        (LONG, tar.FILE, b"content", ""),
        ("sys/ünïcode", tar.FILE, b"", ""),
        ("sys/pipe", tar.OTHER, b"", ""),
    ]


@pytest.mark.parametrize("format_", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_targets(format_: int) -> None:
    data = write_tar(format_, (LONG, tarfile.SYMTYPE, f"../{LONG}", b""))
    [entry] = tar.entries(data)
    assert (entry.name, entry.target) == (LONG, f"../{LONG}")


def test_what_is_said_of_one_entry_is_not_said_of_the_next() -> None:
    data = write_tar(
        tarfile.PAX_FORMAT, (LONG, tarfile.REGTYPE, "", b""), ("sys/a", tarfile.REGTYPE, "", b"")
    )
    assert [entry.name for entry in tar.entries(data)] == [LONG, "sys/a"]


def damage_header(data: bytes, at: int, value: bytes) -> bytes:
    """Returns the file with other bytes in its first header, and with the right checksum."""
    header = bytearray(data)
    header[at : at + len(value)] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    return bytes(header)


ONE = write_tar(tarfile.USTAR_FORMAT, ("sys/a", tarfile.REGTYPE, "", b"content"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no tar", "ends in the middle"),
        (b"x" * 512, "is no number"),
        (b"sys/b" + ONE[5:], "no tar header at byte 0"),
        (ONE[:511], "ends in the middle"),
        (ONE[:515], "ends in the middle"),
        (damage_header(ONE, 124, b"77777777777\0"), "ends in the middle"),
        (damage_header(ONE, 124, b"-0000000001\0"), "is no number"),
        (damage_header(ONE, 124, b"\xff" * 12), "is no number"),
        (damage_header(ONE, 156, b"x"), "PAX header makes no sense"),
    ],
)
def test_what_makes_no_sense_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(tar.entries(data))


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (b"0 path=a\n", "makes no sense"),
        (b"99 path=a\n", "makes no sense"),
        (b"-9 path=a\n", "makes no sense"),
        (b"9 path=ab", "makes no sense"),
        (b"8 patha\n", "makes no sense"),
        (b"3 \n", "makes no sense"),
        (b"22 GNU.sparse.major=1\n", "sparse"),
    ],
)
def test_records_that_make_no_sense(records: bytes, reason: str) -> None:
    data = write_tar(tarfile.USTAR_FORMAT, ("x", b"x", "", records))
    with pytest.raises(ValueError, match=reason):
        list(tar.entries(data))


@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g"])
def test_thousands_of_entries_about_entries_are_no_trouble(kind: bytes) -> None:
    content = b"10 path=a\n" if kind in b"xg" else b"name"
    header = write_tar(tarfile.USTAR_FORMAT, ("x", kind, "", content))[:1024]
    assert list(tar.entries(header * 5000)) == []


def pax_header(content: bytes) -> bytes:
    """Returns a file with these records for its only entry."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        header = tarfile.TarInfo("records")
        header.type, header.size = tarfile.XHDTYPE, len(content)
        archive.addfile(header, io.BytesIO(content))
        archive.addfile(tarfile.TarInfo("sys/file"))
    return stream.getvalue()


class CountedBytes(bytes):
    """Bytes that count what is copied out of them."""

    copied = 0

    def __getitem__(self, place):
        part = super().__getitem__(place)
        if isinstance(part, int):
            return part
        CountedBytes.copied += len(part)
        return CountedBytes(part)


def test_many_small_records_take_no_more_time_than_their_length() -> None:
    """A copy of the rest for each record takes 17 s for a MiB."""
    records = CountedBytes(b"6 a=b\n" * 10_000)
    assert tar._records(records) == {"a": "b"}
    assert CountedBytes.copied < 10 * len(records)


def test_the_last_of_two_records_counts() -> None:
    records = b"14 path=sys/a\n" + b"6 a=b\n" + b"14 path=sys/b\n"
    assert [entry.name for entry in tar.entries(pax_header(records))] == ["sys/b"]


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_records_past_their_budget(kind: bytes) -> None:
    data = write_tar(tarfile.USTAR_FORMAT, ("records", kind, "", b"x" * (tar.LONGEST_HEADER + 1)))
    with pytest.raises(ValueError, match="a PAX header has more than 1,048,576 bytes"):
        list(tar.entries(data))
