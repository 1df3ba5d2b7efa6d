"""A Kubernetes object as JSON has it, before anything gave it a type."""

from typing import Any

Document = dict[str, Any]
