"""Rules run again in another process, where sets of texts have another order."""

import os
from pathlib import Path

import pytest

from pertoken.advisor.rules.discovery import rules_in
from pertoken.plugins.market.use_spot import use_spot
from pertoken.testing import faults, regimes, run
from pertoken.testing.conformity import results_elsewhere
from tests.advisor.gathered import own
from tests.advisor.rules.builders import written

SET = "yield skip('set', ' '.join({f'name-{n}' for n in range(20)}))"


def test_a_rule_yields_the_same_in_another_process() -> None:
    assert results_elsewhere(use_spot) == {name: run(use_spot, name) for name in regimes()}
    few = use_spot.configured({"min_replicas": 5})
    assert results_elsewhere(few) == {name: run(few, name) for name in regimes()}


@pytest.mark.parametrize("seed", ["1", "random"])
def test_a_rule_with_results_in_the_order_of_a_set_does_not_conform(
    tmp_path: Path, seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "PYTHONHASHSEED", seed)
    (rule,) = rules_in(written(tmp_path / "mine.py", body=SET))
    (fault,) = faults(rule)
    assert fault.startswith("it yields something else in another process: sort sets of texts")
    (sorted_rule,) = rules_in(written(tmp_path / "good.py", body=SET.replace("join(", "join(sorted(") + ")"))
    assert faults(sorted_rule) == ()


def test_output_of_a_rule_is_no_part_of_its_result_and_an_error_is_reported_once(tmp_path: Path) -> None:
    (rule,) = rules_in(written(tmp_path / "mine.py", body="print('loud')\nraise ValueError('no')\nyield"))
    assert results_elsewhere(rule) == {}
    (fault,) = faults(rule)
    assert fault.startswith("it raises ValueError: no")


def test_a_rule_that_is_no_global_of_a_module_is_not_run_elsewhere() -> None:
    assert results_elsewhere(own(lambda seen, now: ())) is None
