"""Another client of the API server, a process of its own: it reads small objects and writes them, in
turns, and says how long each request took.

What it asks for it asks for in time, however long others take: a request that waits holds up no
other, neither here nor in the API server, which has writes of the same object wait for each other.
One JSON object a request on the standard output, until the standard input ends.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

from tests.bench import api

from .cluster import OTHERS

RATE = 20.0  # requests a second
AT_ONCE = 40  # of them that may wait for an answer
PATH = f"/api/v1/namespaces/{OTHERS}/configmaps"


def name(number: int) -> str:
    """Of the object that the request of this number is about, which none of those beside it is."""
    return f"neighbour-{number % (2 * AT_ONCE)}"


def body(number: int, value: int) -> api.Object:
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(number)}}
    return {**head, "data": {"value": str(value)}}


class Neighbour:
    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._mine = threading.local()
        self._saying = threading.Lock()
        self._room = threading.Semaphore(AT_ONCE)

    def run(self) -> None:
        """Asks at its pace until the standard input ends."""
        for number in range(2 * AT_ONCE):
            self._api()("POST", PATH, body(number, 0), but=(409,))
        done = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()

        began = time.monotonic()
        with futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for number in itertools.count():
                if done.wait(max(0.0, began + number / RATE - time.monotonic())):
                    break
                # What an API server that is away has held up is not made up for afterwards.
                if self._room.acquire(blocking=False):
                    pool.submit(self._ask, "PUT" if number % 2 else "GET", number)
            pool.shutdown(cancel_futures=True)

    def _ask(self, method: str, number: int) -> None:
        began, at = time.monotonic(), time.time()
        failure = ""
        try:
            content = body(number, number) if method == "PUT" else None
            self._api()(method, f"{PATH}/{name(number)}", content)
        except (api.BenchError, http.client.HTTPException, OSError) as error:
            failure = str(error)[:200]
            self._mine.api = None
        finally:
            self._room.release()
        line = {"t": at, "verb": method, "took": time.monotonic() - began, "failure": failure}
        with self._saying:
            print(json.dumps(line), flush=True)

    def _api(self) -> api.Api:
        """One connection a thread."""
        api_: api.Api | None = getattr(self._mine, "api", None)
        if api_ is None:
            api_ = self._mine.api = api.connect(self._kubeconfig)
        return api_


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.scale.neighbour", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    Neighbour(parser.parse_args().kubeconfig).run()
