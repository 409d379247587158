"""Hints: one sentence for all that is the same."""

from dataclasses import replace

from pertoken.costs.report.fleet_report import hints
from pertoken.costs.report.lines import MissingMetric
from tests.tui.reports import host


def test_agents_that_stopped_are_one_sentence() -> None:
    stale = [host(n, f"gpu-{n}", age_s=600 + n) for n in range(1, 17)]
    (hint,) = hints(stale, (), [("llama", None)], ())
    assert hint == (
        "The agents on gpu-1, gpu-2 and 14 more have stored nothing for 10m or longer: are they running? Start each "
        "with `pertoken agent`."
    )
    (alone,) = hints(stale[:1], (), [("llama", None)], ())
    assert alone.startswith("The agent on gpu-1 has stored nothing for 10m: is it running?")
    never = replace(stale[2], age_s=None)
    assert len(hints([*stale[:2], never], (), [("llama", None)], ())) == 2


def test_metrics_that_devices_lack_for_one_reason_are_one_sentence() -> None:
    missing = [
        MissingMetric(f"H100 #{n}", metric, "denied", "no rights", "add the group video", n)
        for n in range(8)
        for metric in ("power_mw", "util_1e4")
    ]
    (hint,) = hints([host(1, "gpu-1")], (), [("llama", None)], missing)
    assert hint.startswith("H100 #0, H100 #1 and 6 more: ") and hint.endswith("To switch it on: add the group video.")


def test_a_stale_imported_host_is_hinted_to_import_again_and_not_to_start_an_agent() -> None:
    line = replace(host(1, "gpu-1", age_s=600), imported=True)
    (hint,) = hints([line], (), [("llama", None)], ())
    assert hint.startswith("Telemetry of gpu-1 was imported and ends 10m ago: `pertoken import prometheus` goes on")


def test_hosts_of_a_demo_are_not_asked_whether_their_agents_run() -> None:
    ended = [replace(host(n, f"gpu-{n}"), age_s=400 + n, generated=True) for n in range(3)]
    (hint,) = hints(ended, (), [("llama", None)], ())
    assert hint.startswith("This is a generated demo, which ended 7m") and "agent" not in hint


def test_a_demo_with_a_host_that_wrote_two_minutes_ago_has_not_ended() -> None:
    hosts = [replace(host(n, f"gpu-{n}"), age_s=age_s, generated=True) for n, age_s in enumerate((400, 119))]
    assert hints(hosts, (), [("llama", None)], ()) == ()
