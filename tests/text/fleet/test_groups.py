"""Groups of the fleet, and the engines that ended."""

from dataclasses import replace

from pertoken.text.fleet import ended_line, ended_sheet, first_group, group_note, next_group, running
from tests.tui.reports import CHAT, RESTARTED, RICH, TENANTS, host

ENDED = replace(RESTARTED, ended=True, age_s=2400)


def test_many_hosts_open_on_hosts() -> None:
    assert first_group(RICH) == "service"
    assert first_group(replace(RICH, hosts=tuple(host(n, f"gpu-{n}") for n in range(5)))) == "host"


def test_groups_follow_one_another() -> None:
    assert [next_group(group, ()) for group in ("service", "host", "tenant")] == ["host", "tenant", "service"]
    bases = ("namespace", "label:team")
    assert [next_group(group, bases) for group in ("tenant", *bases)] == ["namespace", "label:team", "service"]
    assert next_group("label:gone", bases) == "service"


def test_the_note_of_a_divided_bill_names_the_next_basis_of_owners() -> None:
    spend = replace(TENANTS, notes=(), bases=("namespace", "label:team"))
    assert group_note("tenant", spend) == "By tenant: whole hours, tokens of gateways. g: by namespace."
    by_team = replace(spend, by="label:team")
    assert group_note("label:team", by_team) == "By label:team: whole hours, tokens of engines."
    assert group_note("namespace", by_team) == "By namespace: reading…"


def test_engines_that_ended_are_one_line_and_no_rows() -> None:
    report = replace(RICH, deployments=(CHAT, ENDED))
    assert list(running(report)) == [CHAT]
    assert ended_line(report) == "1 ended, $4.98 of the bill: Qwen/Qwen3-8B on gpu-b"
    assert ended_sheet(report)[0].lines[0][0] == "Qwen/Qwen3-8B on gpu-b"
    assert ended_line(RICH) is None
