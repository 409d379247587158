import json
import re
from pathlib import Path

from pertoken.agent.exporter.totals import Totals
from pertoken.reports.exporters.dollars import known_dollars

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "pertoken.json"


def test_every_metric_of_the_dashboard_is_exposed() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    known = {each.name for each in (*Totals.known(), *known_dollars())}
    asked = set(re.findall(r"pertoken_\w+", " ".join(each["expr"] for panel in panels for each in panel["targets"])))
    assert asked and asked <= known
    assert len({panel["id"] for panel in panels}) == len(panels)
