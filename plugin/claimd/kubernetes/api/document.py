"""The type of a decoded Kubernetes object that has no class yet."""

from typing import Any

Document = dict[str, Any]
