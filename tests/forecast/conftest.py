"""Fixtures of the forecast's tests."""

import pytest


@pytest.fixture
def one_design(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refit under the design without its alternatives: a quarter of the time."""
    monkeypatch.setattr("benchmarks.forecast.fit.alternatives", tuple)
