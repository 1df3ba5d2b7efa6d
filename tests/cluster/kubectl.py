"""Runs kubectl and parses its JSON. This module knows nothing about claimd, and does not wait."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Object = dict[str, Any]


class KubectlError(Exception):
    """Reports that a kubectl command failed, with kubectl's message."""


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """Runs kubectl for one cluster, user and namespace."""

    kubeconfig: Path
    namespace: str = "default"

    def within(self, namespace: str) -> Kubectl:
        return replace(self, namespace=namespace)

    def __call__(self, *words: str, text: str | None = None, seconds: float = 120) -> str:
        command = [
            "kubectl",
            f"--kubeconfig={self.kubeconfig}",
            f"--namespace={self.namespace}",
            *words,
        ]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=seconds, check=False
        )
        if done.returncode:
            raise KubectlError(
                f"kubectl {' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}"
            )
        return done.stdout

    def find(self, kind: str, name: str) -> Object | None:
        """Returns the object, or None if it does not exist."""
        told = self("get", kind, name, "--output=json", "--ignore-not-found")
        return json.loads(told) if told else None

    def get(self, kind: str, name: str) -> Object:
        obj = self.find(kind, name)
        assert obj is not None, f"there is no {kind} {name}"
        return obj

    def list(self, kind: str, *words: str) -> list[Object]:
        items: list[Object] = json.loads(self("get", kind, "--output=json", *words))["items"]
        return items

    def create(self, *objects: Object) -> None:
        self("create", "--filename=-", text=_list_document(objects))

    def delete(self, kind: str, *names: str, wait: bool = True, force: bool = False) -> None:
        now = ["--grace-period=0", "--force"] if force else []
        self("delete", kind, *names, f"--wait={str(wait).lower()}", "--ignore-not-found", *now)

    def patch(self, kind: str, name: str, form: str, change: object) -> None:
        self("patch", kind, name, f"--type={form}", f"--patch={json.dumps(change)}")

    def exec(self, pod: str, *command: str, container: str = "") -> str:
        chosen = [f"--container={container}"] if container else []
        return self("exec", pod, *chosen, "--", *command)

    def may(self, verb: str, resource: str, name: str = "") -> bool:
        """Returns True if this user may do it in all namespaces.

        The resource has the form `group/resource/subresource`.
        """
        group, plural, subresource = (*resource.split("/"), "")[:3]
        asked = {
            "verb": verb,
            "group": group,
            "resource": plural,
            "subresource": subresource,
            "name": name,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        told = self(
            "create", "--validate=false", "--filename=-", "--output=json", text=json.dumps(review)
        )
        allowed: bool = json.loads(told)["status"]["allowed"]
        return allowed


def _list_document(objects: tuple[Object, ...]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
