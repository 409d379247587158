"""Names that `:` goes to."""

from dataclasses import replace

from pertoken.costs.report.lines import FleetReport
from pertoken.text.keys import KeyTarget, candidates, targets, unknown
from pertoken.tui.options import SettingLine
from tests.tui.reports import ADVICE, CHAT, RICH

SETTINGS = (SettingLine("agent.interval", "10", "", "Time between ticks."),)


def known(report: FleetReport | None = RICH) -> tuple[KeyTarget, ...]:
    return targets(report, ("mine",), ADVICE, [setting.name for setting in SETTINGS])


def test_every_kind_of_name_is_known() -> None:
    labels = [target.label for target in known()]
    for label in ("screen plan", "host gpu-a", "service Qwen/Qwen3-8B", "rule use-spot", "setting agent.interval"):
        assert label in labels
    assert len(labels) == len(set(labels))


def test_a_model_that_is_served_twice_is_named_with_its_host() -> None:
    twice = replace(RICH, deployments=(CHAT, replace(CHAT, deployment_id=99, host="gpu-b")))
    names = [target.name for target in known(twice) if target.kind == "deployment"]
    assert names == [f"{CHAT.model} on gpu-a", f"{CHAT.model} on gpu-b"]


def test_a_whole_name_comes_before_a_start_and_a_start_before_a_part() -> None:
    names = (KeyTarget("host", "my-gpu-1"), KeyTarget("host", "gpu-10"), KeyTarget("host", "gpu-1"))
    assert [target.name for target in candidates("GPU-1", names)] == ["gpu-1", "gpu-10", "my-gpu-1"]
    assert next(target.name for target in candidates("host gpu-1", names)) == "gpu-1"
    assert candidates("zebra", names) == ()
    assert candidates("", names) == names


def test_an_unknown_name_comes_with_the_nearest_and_is_literal() -> None:
    assert unknown("agent.intervall", known()).endswith("; the most similar is setting agent.interval.")
    assert (
        unknown("\x1bqqqqqqqqq", known()) == r"No screen, host, service, rule or setting has the name “\x1bqqqqqqqqq”."
    )
