"""Checking the rules of a file in a worker: whatever a file does, the check goes on."""

import os
from pathlib import Path

import pytest

from pertoken.advisor.rules.listing import CheckedFile, RuleCheck, check
from pertoken.advisor.worker.child import RuleLimits
from pertoken.errors import BadInput
from tests.advisor.rules.builders import written

LIMITS = RuleLimits(call_s=15.0, plugin_s=20.0)


def checked(file: Path) -> tuple[RuleCheck, CheckedFile]:
    (result,) = check(file, LIMITS)
    (rule,) = result.rules
    return rule, result


def test_a_rule_is_checked_in_another_process_and_what_it_prints_is_kept(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.py", before="import os\nprint(os.getpid())")
    rule, result = checked(file)
    assert (rule.rule_id, rule.title, rule.faults) == ("own-rule", "Does a thing.", ())
    assert dict(rule.got)["idle"] == ("refuses nothing: found nothing",)
    assert int(result.output.splitlines()[0]) != os.getpid()


def test_a_file_that_ends_its_process_fails_alone(tmp_path: Path) -> None:
    written(tmp_path / "a.py").write_text("import os; os._exit(0)")
    written(tmp_path / "b.py")
    broken, whole = check(tmp_path, LIMITS)
    assert (broken.failed, broken.rules) == ("it ended its process", ())
    assert (whole.failed, [rule.rule_id for rule in whole.rules]) == (None, ["own-rule"])


def test_a_rule_that_does_not_end_is_ended_and_shows_where_it_was(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.py", body="while True:\n    pass\nyield")
    (result,) = check(file, RuleLimits(call_s=1.0, plugin_s=5.0))
    assert result.failed == "it took longer than 1 s"
    assert 'mine.py", line' in result.output


def test_a_rule_that_swallows_every_error_is_ended(tmp_path: Path) -> None:
    stubborn = "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0)\n"
    file = written(tmp_path / "mine.py", before=stubborn, body="while True:\n    pass\nyield")
    (result,) = check(file, RuleLimits(call_s=1.0, plugin_s=2.0))
    assert result.failed == "it took longer than 2 s"


@pytest.mark.parametrize(
    "message", [b"[]", b'{"done": 3, "output": ""}', b'{"done": [{}], "output": ""}', b'{"done": [[]], "output": ""}']
)
def test_a_file_that_reports_a_result_of_its_own_is_no_result(tmp_path: Path, message: bytes) -> None:
    (tmp_path / "mine.py").write_text(f"import os\nos.write(3, {message + bytes([10])!r})\nos._exit(0)")
    (result,) = check(tmp_path / "mine.py", LIMITS)
    assert result.failed in ("it returned an invalid message", "it ended its process")


def test_a_path_without_a_python_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no rule")
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "missing.py"):
        with pytest.raises(BadInput, match="not a Python file"):
            check(path)
