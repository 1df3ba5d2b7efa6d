"""Each bug of the CDI files that the crash campaign found."""

import os

from claimd.common import names
from claimd.node.prepare import cdi
from tests.support.worlds import DRIVER


def test_what_a_dead_writer_left_is_swept(tmp_path):
    """A process that is killed between the write and the rename leaves its temporary file, under
    its own number.
    """
    left = f".{names.cdi_file(DRIVER, 'uid-c')}.4711"
    others = [f".{names.cdi_file('other.example.com', 'uid-c')}.4711", ".hidden", "vendor.json"]
    for name in (left, *others):
        (tmp_path / name).write_text("{")
    assert cdi.SpecFolder(tmp_path, DRIVER).sweep() == set()
    assert sorted(os.listdir(tmp_path)) == sorted(others)
