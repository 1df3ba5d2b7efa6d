import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path():
    """A short one: a socket's path may have 107 bytes, and pytest's own folders are longer than
    that at times.
    """
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        yield Path(folder)
