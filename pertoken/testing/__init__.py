"""Public surface for testing a rule: builders of fleets and evidence, typical situations, and a conformity suite.

    from my_rule import my_rule
    from pertoken.testing import assert_conforms, run

    def test_it_proposes_a_larger_batch_where_requests_wait() -> None:
        (proposed,) = run(my_rule, "saturated").proposals
        assert proposed.diff.knobs(1)["max_num_seqs"] == (64, 128)

    def test_it_conforms() -> None:
        assert_conforms(my_rule)

- `run(rule, regime, **options)` runs a rule for each of its targets and returns what it yielded, as a `Result`.
- `regimes()` are the typical situations by name. `regime(fleet, {"chat": evidence(...)})` makes your own.
- `fleet`, `service`, `deployment`, `model`, `evidence`, `series` and `earlier` build the parts of a regime;
  `earlier` is an earlier epoch.
- `assert_conforms(rule)` raises AssertionError with every fault; `faults(rule)` returns them.

Nothing here prices a proposal: `pertoken advise --rule FILE` does, on recorded telemetry.
"""

from pertoken.testing.builders import Regime, deployment, earlier, evidence, fleet, model, regime, series, service
from pertoken.testing.conformity import Proposed, Result, assert_conforms, faults, run
from pertoken.testing.regimes import regimes

__all__ = [
    "Proposed",
    "Regime",
    "Result",
    "assert_conforms",
    "deployment",
    "earlier",
    "evidence",
    "faults",
    "fleet",
    "model",
    "regime",
    "regimes",
    "run",
    "series",
    "service",
]
