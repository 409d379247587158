import json
import re
from pathlib import Path

from pertoken.agent.exporter import TickTotals
from pertoken.reports.exporters import known_dollars

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "pertoken.json"


def test_every_metric_of_the_dashboard_is_exposed() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    known = {each.name for each in (*TickTotals.known(), *known_dollars())}
    asked = set(re.findall(r"pertoken_\w+", " ".join(each["expr"] for panel in panels for each in panel["targets"])))
    assert asked and asked <= known
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_board_covers_price_idle_objectives_savings_and_verdicts_by_service() -> None:
    board = json.loads(DASHBOARD.read_text())
    expressions = " ".join(target["expr"] for panel in board["panels"] for target in panel["targets"])
    for metric in ("usd_per_mtok", "idle_usd_ratio", "slo_ratio", "bankable_usd_per_month", "window_regressions"):
        assert metric in expressions
    assert {"source", "service"} == {variable["name"] for variable in board["templating"]["list"]}
    assert "$service" in expressions
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in board["panels"])
