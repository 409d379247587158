"""Plots: gaps stay gaps, and metrics without values are named."""

from dataclasses import replace

from pertoken.state.service import Slo
from pertoken.text.course import mark_lines, panels, runs, ticks, token_sentence
from pertoken.window.course import Mark
from tests.tui.reports import COURSE, NOW


def test_a_panel_without_values_has_no_plot_and_is_named() -> None:
    shown, missing = panels(COURSE, COURSE.slo)
    assert [panel.name for panel in shown] == ["Tokens", "Power", "Activity", "Requests", "KV cache", "TTFT"]
    assert missing == ("TPOT",)


def test_limits_caps_and_objectives_are_levels_of_their_plot() -> None:
    shown, _ = panels(replace(COURSE, power_cap_w=900.0), Slo(ttft_p95_ms=400.0))
    assert shown[1].levels == (("limit", 1400.0), ("cap", 900.0))
    assert shown[1].caption == "Power, W: ▪ power 716  ─ limit 1,400  ─ cap 900"
    assert shown[5].levels == (("SLO p95", 400.0),)
    assert shown[5].highest >= 400


def test_a_line_that_is_taken_while_busy_has_that_in_its_label() -> None:
    captions = {panel.name: panel.caption for panel in panels(COURSE)[0]}
    assert captions["Requests"] == "Requests, mean: ▪ running while busy 2.97  · waiting 0.13"
    assert captions["KV cache"] == "KV cache, %: ▪ in use while busy 11.7"
    assert captions["Activity"] == "Activity, %: ▪ util 51.6  · SM 31.5  x mem BW 21.5"


def test_lines_end_at_a_gap_and_begin_after_it() -> None:
    assert runs((1.0, None, 2.0, 3.0, None)) == [[(0, 1.0)], [(2, 2.0), (3, 3.0)]]
    assert runs(COURSE.series["generated_tok_s"])[0][-1][0] == 17
    assert runs(COURSE.series["generated_tok_s"])[1][0][0] == 24


def test_times_under_a_plot_are_those_of_its_slices() -> None:
    assert ticks(COURSE, 40) == [(0, "07:00"), (59, "07:59")]
    assert len(ticks(COURSE, 100)) == 6


def test_marks_are_listed_newest_first_and_act_on_nothing() -> None:
    assert mark_lines(COURSE)[1] == "01-15 07:39Z  event    Qwen/Qwen3-8B restarted on gpu-b [b]!"
    many = replace(COURSE, marks=tuple(Mark(NOW - n, "event", "\x1b[31m") for n in range(20, 0, -1)))
    assert len(mark_lines(many)) == 13
    assert mark_lines(many)[-1] == "and 8 earlier"
    assert "\x1b" not in "".join(mark_lines(many))


def test_tokens_are_split_into_computed_cached_and_generated() -> None:
    assert token_sentence(COURSE) == (
        "Of 21.6M tokens: prompt computed 47%, prompt cached 42%, generated 11%. "
        "Energy: 0.97 kWh, 1.45 J per generated token."
    )
    assert (token_sentence(COURSE, split=False) or "").startswith("21.6M tokens. Energy: 0.97 kWh")
    assert "0.97 kWh ($0.194), " in (token_sentence(COURSE, 0.2) or "")
    assert token_sentence(replace(COURSE, prompt_tokens=0, cached_tokens=0, generated_tokens=0)) is None
