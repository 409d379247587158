"""Details of one deployment, device or host."""

from dataclasses import replace

from pertoken.text.fleet_sheets import deployment_sheet, device_sheet, host_sheet
from pertoken.text.sheet import Sheet
from pertoken.text.summary import summary
from tests.tui.reports import RICH


def test_busy_time_that_is_an_upper_bound_is_shown_as_one() -> None:
    assert RICH.bill is not None
    line = replace(RICH.deployments[0], busy=0.12, busy_provenance="bound")
    bounded = replace(RICH, deployments=(line,), bill=replace(RICH.bill, busy_is_bound=True))
    text = summary(bounded, ())
    assert "in 1h, 97% observed: busy ≤ $4.63 + idle ≥ $2.84 + other $0.25 + unallocated $2.24" in " ".join(
        text.split()
    )
    assert " ≤12% " in text
    facts = "\n".join(f"{fact}" for section in deployment_sheet(bounded, line) for fact in section.lines)
    assert "≤12%" in facts
    assert "≥9%" in facts and "≥61%" in facts  # MFU and MBU, over an upper bound of the time
    assert "Busy is an upper bound" in facts
    exact = replace(line, busy_provenance="counter")
    assert " 12% " in summary(replace(RICH, deployments=(exact,)), ())


def facts(sections: Sheet) -> dict[str, tuple[object, ...]]:
    return {section.title: section.lines for section in sections}


def test_a_device_without_a_price_shows_how_to_set_one_and_what_is_not_measured() -> None:
    gap = RICH.devices[2]
    sheet = facts(device_sheet(RICH, replace(gap, nano_usd_per_hour=None)))
    assert any("`pertoken prices set --help`" in str(line) for line in sheet["Price"])
    assert dict(sheet["Not measured"]) == {  # type: ignore[arg-type]
        "util": "the driver does not report it under MIG",
        "power": "/dev/nvidia0 may not be read. Add the agent to group video.",
    }


def test_a_host_names_its_agent_and_when_it_was_last_read() -> None:
    sheet = facts(host_sheet(RICH, RICH.hosts[0]))
    assert sheet["Agent"] == (("reads every", "10s"),)
    assert sheet["How far to trust it"] == ("Last read 4s ago.",)
    stale = facts(host_sheet(RICH, replace(RICH.hosts[0], age_s=900)))
    assert "the figures are stale" in str(stale["How far to trust it"])
