"""Restrictions of a worker, and those that the kernel does not support."""

import pytest

from pertoken.advisor.worker import child
from pertoken.advisor.worker.child import RuleLimits
from pertoken.advisor.worker.run import run_plugins
from tests.advisor.gathered import rule_source
from tests.advisor.hostile import NEIGHBOURS


def test_a_missing_kernel_feature_is_reported_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = child.Confinement("no filter of system calls", None, None)
    monkeypatch.setattr(child, "confine", lambda folder: refused)
    (run,) = run_plugins((rule_source(NEIGHBOURS[0]),), None, RuleLimits.of_call(1.0))
    assert run.confinement.label != "confined"
    assert run.confinement.label == "not confined (network: no filter of system calls)"
    assert child.Confinement(None, None, "no namespace").label == "confined"
