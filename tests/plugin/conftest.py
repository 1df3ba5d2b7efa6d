"""What holds for every test of the plugin."""

from __future__ import annotations

import pytest

from claimd.node.report import events, policy_check


@pytest.fixture(autouse=True)
def told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test is one node: nobody is there with whom it could ask at the same time."""
    monkeypatch.setattr(events, "SPREAD", 0.0)
    monkeypatch.setattr(policy_check, "SPREAD", 0.0)
