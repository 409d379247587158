from pathlib import Path

import pytest

from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.reports.mcp.answers import Answers
from tests.reports.builders import END, recorded


def test_the_bill_is_answered_and_wrong_questions_are_refused(tmp_path: Path) -> None:
    answers = Answers(recorded(tmp_path / "db"), Settings(), now=lambda: END)
    found = answers.costs(hours=4)
    assert found["usd"] == pytest.approx(82.56) and found["left_out"] == 0
    assert sum(line["usd"] for line in found["lines"]) == pytest.approx(82.56)
    assert answers.savings() == {"found": [], "left_out": 0, "taken": []}
    assert answers.verdicts()["verdicts"] == [] and answers.refusals()["refusals"] == []
    with pytest.raises(BadInput, match="hours"):
        answers.costs(hours=0)
    with pytest.raises(BadInput, match="by: must be one of tenant, team, model, gpu"):
        answers.costs(by="host; drop table")
