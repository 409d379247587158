"""Public surface for testing a rule: fleets and evidence made by hand, typical situations, and a conformity suite.

    from my_rule import my_rule
    from pertoken.testing import assert_conforms, run

    def test_it_proposes_a_larger_batch_where_requests_wait() -> None:
        (proposed,) = run(my_rule, "saturated").proposals
        assert proposed.diff.knobs(1)["max_num_seqs"] == (64, 128)

    def test_it_conforms() -> None:
        assert_conforms(my_rule)

- `run(rule, regime, **options)` runs a rule for each of its targets and returns what it yielded, as a `Result`.
- `regimes()` are the typical situations by name. `regime(fleet, {"chat": evidence(...)})` is one of your own.
- `fleet`, `service`, `deployment`, `model`, `evidence`, `series` and `earlier` build what a regime is made of; the last
  one is an earlier epoch.
- `assert_conforms(rule)` raises AssertionError with every fault; `faults(rule)` returns them.

Nothing here prices a proposal: `pertoken advise --rule FILE` does, over what was recorded.
"""

from pertoken.testing.builders import deployment, earlier, evidence, fleet, model, series, service
from pertoken.testing.conformity import assert_conforms, faults
from pertoken.testing.regime import Regime, regime
from pertoken.testing.regimes import regimes
from pertoken.testing.running import Proposed, Result, run

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
