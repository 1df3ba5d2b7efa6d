"""Asks a real API server what the scripts of tests/cases/sim ask, and writes the answers down.

    python3 -m tests.cluster.rig up --api-server-only --kube 1.37.1
    python -m tests.oracle.exchanges --release 1.37 --kubeconfig /var/tmp/rig/admin.kubeconfig [TOPIC ...]

The server should have nothing else to do: no controllers, no nodes, and no objects but those of the
scripts.
"""

import argparse
import json
import sys
import time
import urllib.request
from pathlib import Path

import yaml

from tests.support.exchanges import Server, Session, requests_of, written

CASES = Path(__file__).parents[1] / "cases/sim"
ETCD = "http://127.0.0.1:12379"


def compact():
    """Forgets every older version, as a server's compaction does every five minutes."""

    def post(path, body):
        request = urllib.request.Request(ETCD + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    revision = post("/v3/kv/range", {"key": "AA=="})["header"]["revision"]
    post("/v3/kv/compaction", {"revision": revision, "physical": True})


def record(server, script, release, version):
    session = Session(server)
    exchanges = []
    for request in requests_of(script, version):
        answer = session.ask(request)
        deadline = time.monotonic() + 30
        while request.get("setup") == "until served" and answer["code"] in (404, 429):
            assert time.monotonic() < deadline, f"{request['path']} is not served"
            time.sleep(0.1)  # a real server takes a moment for a definition
            answer = session.ask(request)
        if "events" in answer:
            request["events"] = len(answer["events"])  # so that nobody waits for more
        if request.pop("setup", False):
            if answer["code"] >= 300:
                sys.exit(
                    f"{script['topic']} {version}: {json.dumps(request)}: {json.dumps(answer)}"
                )
            answer = None
        exchanges.append({"request": request} | ({"answer": answer} if answer else {}))
    return {
        "release": release,
        "topic": script["topic"],
        "version": version,
        "exchanges": exchanges,
    }


def clean(server):
    """Whatever scripts left behind that lists of the whole cluster would show."""
    session = Session(server)
    session.plain = lambda value: value
    paths = []
    for group in ("/api/v1", "/apis/resource.k8s.io"):
        versions = (
            session.ask({"method": "GET", "path": group})["body"].get("versions")
            if group != "/api/v1"
            else None
        )
        for version in [v["version"] for v in versions or ()] or [""]:
            at = f"{group}/{version}".rstrip("/")
            resources = session.ask({"method": "GET", "path": at})["body"]["resources"]
            wanted = [r["name"] for r in resources if "/" not in r["name"] and "list" in r["verbs"]]
            paths += [
                f"{at}/{name}"
                for name in wanted
                if group != "/api/v1" or name in ("pods", "nodes", "serviceaccounts", "configmaps")
            ]
    for path in paths:
        for item in session.ask({"method": "GET", "path": path})["body"]["items"]:
            metadata = item["metadata"]
            if metadata.get("namespace", "").startswith("kube-"):
                continue
            at, plural = path.rsplit("/", 1)
            at += f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
            at += f"/{plural}/{metadata['name']}"
            body = {"metadata": {"finalizers": None}}
            session.ask(
                {
                    "method": "PATCH",
                    "path": at,
                    "body": body,
                    "type": "application/merge-patch+json",
                }
            )
            session.ask({"method": "DELETE", "path": at + "?gracePeriodSeconds=0"})
    for item in session.ask({"method": "GET", "path": "/api/v1/namespaces"})["body"]["items"]:
        at = f"/api/v1/namespaces/{item['metadata']['name']}"
        if not item["metadata"]["name"].startswith(("kube-", "default")):
            session.ask({"method": "DELETE", "path": at})
            emptied = {"metadata": {"name": item["metadata"]["name"]}, "spec": {"finalizers": []}}
            session.ask({"method": "PUT", "path": f"{at}/finalize", "body": emptied})


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC")
    parser.add_argument("--release", required=True)
    parser.add_argument("--kubeconfig", required=True, type=Path)
    asked = parser.parse_args()
    server = Server.of_kubeconfig(asked.kubeconfig, compact)
    for path in sorted((CASES / "scripts").glob("*.yaml")):
        script = yaml.safe_load(path.read_text())
        if asked.topics and script["topic"] not in asked.topics:
            continue
        for version in script["versions"].get(asked.release, ()):
            clean(server)
            recording = record(server, script, asked.release, version)
            target = CASES / "exchanges" / asked.release / f"{script['topic']}-{version}.json"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(written(recording))
            print(
                f"{target.name}: {sum('answer' in e for e in recording['exchanges'])} exchanges",
                flush=True,
            )


if __name__ == "__main__":
    main()
