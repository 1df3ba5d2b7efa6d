"""The connection to the kubelet: sockets, registration, and the RPCs for prepare, unprepare and
health.

No other package imports grpc. This package makes no decision about a claim.
"""

import importlib.util
import os
import sys

# gRPC reads this variable when it is imported. Without the newer listener, the thread that is
# notified of a call also reads it from the socket. A call then takes eight thread switches instead
# of twelve, and a quarter less of the CPU.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")


def _load_at_first_use(name: str) -> None:
    """Makes imports of the module lazy: it is loaded at the first use of one of its attributes."""
    spec = importlib.util.find_spec(name)
    if name in sys.modules or spec is None or spec.loader is None:
        return
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)

    # `from package import module` takes the attribute of the package, and not sys.modules.
    folder, _, last = name.rpartition(".")
    setattr(sys.modules[folder], last, module)


# The pure Python implementation of protobuf's messages, with the text format. Protobuf always
# imports it, and then uses its messages in C. Loading it takes a twentieth of the CPU of our start.
_load_at_first_use("google.protobuf.internal.python_message")
