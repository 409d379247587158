from pathlib import Path

import pytest

from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.reports.mcp.replies import Replies
from tests.reports.builders import END, recorded


def test_the_bill_is_answered_and_wrong_questions_are_refused(tmp_path: Path) -> None:
    replies = Replies(recorded(tmp_path / "db"), Settings(), now=lambda: END)
    reply = replies.costs(hours=4)
    assert reply["usd"] == pytest.approx(82.56) and reply["left_out"] == 0
    assert sum(line["usd"] for line in reply["lines"]) == pytest.approx(82.56)
    assert replies.savings() == {"found": [], "left_out": 0, "unconfirmed": [], "taken": []}
    assert replies.verdicts()["verdicts"] == [] and replies.refusals()["refusals"] == []
    with pytest.raises(BadInput, match="hours"):
        replies.costs(hours=0)
    with pytest.raises(BadInput, match="by: must be one of tenant, team, model, gpu"):
        replies.costs(by="host; drop table")
