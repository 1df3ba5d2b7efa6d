"""What the API server is asked, and an answer or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import client, errors

NO_NODE, GIVE_NODE = "node-name is not set", "give --node-name NAME"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was learnt, or why nothing was: one of the two."""

    value: Any = None
    trouble: str = ""
    how: str = ""  # how somebody could learn it


UNASKED = Answer(trouble="it was not asked")


def document(answer: bytes) -> Document:
    try:
        decoded = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.Malformed(f"the API server's answer is not as expected: {error}") from error
    return decoded if isinstance(decoded, dict) else {}


async def get(api: client.Client, path: str, **query: str) -> Answer:
    """A document, or why there is none."""
    try:
        return Answer(value=document(await api.request("GET", path, query=query)))
    except errors.ApiError as error:
        return Answer(trouble=str(error), how=f"kubectl get --raw {path!r}, as an administrator")


async def post(api: client.Client, path: str, body: Document) -> Document:
    """A review, answered; ApiError if it is not."""
    return document(await api.request("POST", path, body=msgspec.json.encode(body)))
