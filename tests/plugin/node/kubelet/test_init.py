"""What a start does not load, and that it is there when it is needed."""

import os
import subprocess
import sys

import pytest

CODE = """
import sys
import claimd.node.app
print("google.protobuf.text_format" in sys.modules)
from google.protobuf.internal import python_message
from claimd.kubernetes.kubelet_api.dra.v1 import api_pb2
claim = api_pb2.Claim(name="c", uid="u")
print(api_pb2.Claim.FromString(claim.SerializeToString()) == claim, sorted(str(claim).split()))
print(isinstance(python_message.GeneratedProtocolMessageType, type))
"""


@pytest.mark.parametrize(("which", "loaded"), [("upb", "False"), ("python", "True")])
def test_messages_in_python_are_loaded_only_if_they_are_used(which, loaded):
    env = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": which}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [loaded, """True ['"c"', '"u"', 'name:', 'uid:']""", "True"]
