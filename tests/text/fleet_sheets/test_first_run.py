"""Findings on a host where nothing is served yet."""

from pertoken.agent.doctor import Finding
from pertoken.text.fleet_sheets import finding_lines
from pertoken.tui.options import Options
from tests.tui.reports import BARE, HOSTILE, RICH, FixedSource
from tests.tui.screens import running, until_shown

FINDINGS = (
    Finding("host", "laptop", True, "AMD EPYC"),
    Finding("device", "GPU #0", False, "power: not permitted", "add the agent to group video"),
    Finding("engine", "none", False, "no inference server was found", "start one, or name it: --engine URL"),
    Finding("database", HOSTILE, False, "cannot be read"),
)


def test_missing_metrics_come_with_their_remedies_engines_first() -> None:
    lines = finding_lines(FINDINGS, None, None, BARE)
    assert lines[0] == "Examined this host: 3 missing or not readable; works: host."
    assert lines[1].startswith("✗ engine none: no inference server was found; start one")
    assert "\x1b" not in "".join(lines)


def test_a_fleet_that_serves_is_not_examined() -> None:
    assert finding_lines(FINDINGS, None, None, RICH) == []


def test_progress_and_failure_of_the_examination_are_shown() -> None:
    assert finding_lines(None, None, "starting", BARE)[0].startswith("Examining this host")
    assert finding_lines(None, "no driver", None, BARE) == ["This host could not be examined: no driver"]
    assert finding_lines(None, None, None, BARE) == []


async def test_an_empty_fleet_shows_what_the_doctor_found_and_examines_once() -> None:
    calls: list[int] = []

    def diagnose() -> tuple[Finding, ...]:
        calls.append(1)
        return FINDINGS

    async with running(FixedSource(BARE, ()), refresh_s=0.2, options=Options(diagnose=diagnose)) as pilot:
        await until_shown(pilot, "✗ engine none")
        await pilot.pause(0.5)
        assert calls == [1]
        await pilot.press("tab", "E")
        await until_shown(pilot, "No inference server")
