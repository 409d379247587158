"""Every engine with a metrics page has one in `tests/captures/engines.toml`, with exactly the values that are read."""

import re
import tomllib
from dataclasses import dataclass, field

import pytest

from pertoken.agent.engines.adapters import ADAPTERS, tokens
from pertoken.agent.engines.adapters.adapter import PageOrigin
from pertoken.agent.rows.counters import advance, word_totals
from pertoken.agent.scrape import parse
from tests.agent.engine_pages import CAPTURES, read_page

ROWS = tomllib.loads((CAPTURES / "engines.toml").read_text())
WITH_PAGE = [kind for kind, adapter in ADAPTERS.items() if adapter.metrics_path is not None]
NOT_OF_AN_ENGINE = ("-written", "-collector", "-older-names")
"""Ends of the names of pages that no engine sent, as captures/README.md lists them."""


@dataclass(frozen=True, slots=True)
class EnginePage:
    """A page of an engine, and the values expected on it."""

    file: str
    text: str
    counters: dict[str, int] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    observations: dict[str, int] = field(default_factory=dict)


def engine_page(kind: str) -> EnginePage:
    if kind not in ROWS:
        pytest.fail(
            f"{kind} has no page in tests/captures/engines.toml: put a page, as the engine sends it, into "
            "tests/captures, its origin into the README there, and the values that you expect on it into engines.toml"
        )
    row = ROWS[kind]
    like = ROWS[row["like"]] if "like" in row else row
    text = (CAPTURES / f"{like['page']}.prom").read_text().replace(*row.get("rename", ("", "")))
    values = {name: like.get(name, {}) for name in ("counters", "gauges", "observations")}
    return EnginePage(like["page"], f"{text}{row.get('with', '')}\n", **values)


def test_no_row_is_of_an_engine_that_is_not_supported() -> None:
    assert set(ROWS) <= set(WITH_PAGE)


@pytest.mark.parametrize("kind", WITH_PAGE)
def test_an_adapter_reads_the_expected_values_of_its_page(kind: str) -> None:
    adapter, expected = ADAPTERS[kind], engine_page(kind)
    page = parse(expected.text.encode(), adapter.wanted)
    values = read_page(adapter, page)
    counted = advance({}, values.counters, owner_id=1, life=9, ts=1, from_zero=True, elapsed_s=60).deltas
    observations = dict.fromkeys((key.partition("{")[0] for key in adapter.histograms_of(page)), 0)
    for key, histogram in adapter.histograms_of(page).items():
        observations[key.partition("{")[0]] += sum(histogram.counts)
    known = {name: value for name, value in tokens(word_totals(counted)).items() if value is not None}
    assert known == expected.counters
    assert values.gauges == expected.gauges
    assert observations == expected.observations
    assert any((*known.values(), *values.gauges.values(), *observations)), "a page on which nothing is read"


@pytest.mark.parametrize("kind", WITH_PAGE)
def test_a_page_is_recognised_as_its_engine_s_and_as_no_earlier_one_s(kind: str) -> None:
    adapter, text = ADAPTERS[kind], engine_page(kind).text
    recognised = [
        other.kind
        for other in ADAPTERS.values()
        if other.metrics_path == adapter.metrics_path and other.marks.search(text)
    ]
    assert recognised[:1] == [kind]


@pytest.mark.parametrize("kind", WITH_PAGE)
def test_a_page_is_from_where_the_adapter_and_the_readme_state(kind: str) -> None:
    file = engine_page(kind).file
    if ADAPTERS[kind].tested_on is PageOrigin.LIVE:
        assert not file.endswith(NOT_OF_AN_ENGINE)
    assert f"{file}.prom" in listed_files()


def listed_files() -> set[str]:
    """Return the files that the README of the captured pages lists: `a-{b,c}.prom` is two."""
    names: set[str] = set()
    for pattern in re.findall(r"`([^`]+\.prom)`", (CAPTURES / "README.md").read_text()):
        start, brace, rest = pattern.partition("{")
        choices, _, end = rest.partition("}")
        names |= {f"{start}{choice}{end}" for choice in choices.split(",")} if brace else {pattern}
    return names


def test_the_readme_lists_every_page() -> None:
    assert {path.name for path in CAPTURES.glob("*.prom")} == listed_files()
