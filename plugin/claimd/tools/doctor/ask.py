"""Requests to the API server whose answer is a value, or the reason why there is no value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from claimd.common import plain_text
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import client, errors

NO_NODE, GIVE_NODE = "node-name is not set", "give --node-name NAME"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A value, or the reason why it is not known."""

    value: Any = None
    trouble: str = ""
    how: str = ""  # how a person could find out the value


UNASKED = Answer(trouble="it was not asked")


def decode_document(answer: bytes) -> Document:
    """Decodes a JSON object. Raises ApiError if the answer is not JSON.

    Each text becomes one line: a name in a remedy must not add a line that looks like ours.
    """
    try:
        decoded = plain_text.plain_value(msgspec.json.decode(answer))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.Malformed(f"the API server's answer is not as expected: {error}") from error
    return decoded if isinstance(decoded, dict) else {}


async def get(api: client.Client, path: str, **query: str) -> Answer:
    """Reads a document. An ApiError becomes an Answer that says what went wrong."""
    try:
        return Answer(value=decode_document(await api.request("GET", path, query=query)))
    except errors.ApiError as error:
        return Answer(trouble=str(error), how=f"kubectl get --raw {path!r}, as an administrator")


async def post(api: client.Client, path: str, body: Document) -> Document:
    """Posts a review and returns it with its status. Raises ApiError if there is no answer."""
    return decode_document(await api.request("POST", path, body=msgspec.json.encode(body)))
