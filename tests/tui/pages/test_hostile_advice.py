"""Advice of hostile plugins on the screens: every text is shown as text and controls nothing."""

from functools import partial

import pytest
from textual.pilot import Pilot

from pertoken.advisor.rules.discovery import installed
from pertoken.printable import acts
from pertoken.store.connect.location import locate
from pertoken.tui.store_source import StoreSource
from pertoken.tui.widgets.table import Rows
from tests.advisor.builders import NOW, advise
from tests.advisor.sources import DOC, source
from tests.scenario import LOW_BATCH_70B, seed
from tests.tui.reports import FixedSource
from tests.tui.screens import running, text_of, until, until_shown

TEXT = "[/b][link=file:///]\\x1b[31m\\x1b]0;t\\x07\\u202e\\u200f<b>"
"""Hostile text as Python source: markup, terminal sequences, direction marks, HTML."""
UNSTORABLE = "\\ud800\\x00"
"""A lone surrogate and NUL, which no refusal or proposal may have."""
LONG = "n" * 300
TITLED = DOC.replace("Does a thing.", f"[/b][red]Saves\\u202e {LONG}.")
PROPOSES = f"""
yield proposal(service.serving(output_len=to(50, "{TEXT}{LONG}")), requires=("use-spot",))
yield skip("no", "{TEXT}{LONG}")
print("{TEXT}{LONG}", flush=True)
"""
NAMES = "from pertoken.rule import propose as proposal, to\n"
PLUGINS = {
    "raises.py": source(f'raise ValueError("{TEXT}{UNSTORABLE}{LONG}")\nyield', rule_id="raises"),
    "breaks.py": f'raise RuntimeError("{TEXT}{UNSTORABLE}{LONG}")',
    "proposes.py": source(PROPOSES, "seen, service", "proposes", NAMES).replace(DOC, TITLED),
    f"[b]\u202e{'m' * 200}.py": "raise SystemExit('[/b]')",
    "refuses.py": source(f'yield skip("no", "{TEXT}{LONG}")', "seen, service", "refuses").replace(DOC, TITLED),
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> FixedSource:
    """Return a source with the advice that a run with all of the plugins stores."""
    folder = tmp_path_factory.mktemp("hostile")
    seed(folder / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=NOW)
    config = folder / "pertoken.toml"
    config.touch()
    (folder / "rules.d").mkdir(mode=0o755)
    for name, text in PLUGINS.items():
        (folder / "rules.d" / name).write_text(text)
    advise(folder / "db", "--config", str(config))
    built_in = {rule.name for rule in installed() if rule.distribution == "pertoken"} - {"use-spot"}
    advice = StoreSource(locate(str(folder / "db"))).advice()
    return FixedSource(recommendations=tuple(row for row in advice if row.rule_id not in built_in))


def assert_harmless(pilot: Pilot[None]) -> None:
    assert not [char for char in text_of(pilot) if char != "\n" and acts(char)]


async def test_every_text_of_a_hostile_plugin_is_shown_as_text(hostile: FixedSource) -> None:
    states = {row.rule_id: row.state.value for row in hostile.recommendations}
    assert states["raises"] == states["breaks"] == "FAILED" and states["refuses"] == "REFUSED"
    assert states["proposes"] == "OPEN"
    for size in ((80, 24), (120, 40)):
        async with running(hostile, size) as pilot:
            await pilot.press("2", "tab")
            for tab, fewest in (("silent", 4), ("folded", 1)):
                table: Rows[object] = pilot.app.screen.query_one(f"#{tab}", Rows)
                await until(pilot, partial(getattr, table, "has_focus"), f"the tab {tab}")
                assert table.row_count >= fewest
                for _ in range(table.row_count):
                    await pilot.press("enter")
                    await until_shown(pilot, "last evaluated")
                    assert_harmless(pilot)
                    await pilot.press("end")
                    assert_harmless(pilot)
                    await pilot.press("escape", "down")
                    assert_harmless(pilot)
                await pilot.press("tab")


async def test_the_traceback_of_a_rule_that_failed_is_shown_with_its_markup_written_out(hostile: FixedSource) -> None:
    (failed,) = [row for row in hostile.recommendations if row.rule_id == "breaks"]
    only = FixedSource(recommendations=(failed,))
    async with running(only, (120, 40)) as pilot:
        await pilot.press("2", "tab", "enter")
        await until_shown(pilot, "How the rule failed")
        await until_shown(pilot, "[/b][link=file:///]\\x1b[31m\\x1b]0;t\\x07\\u202e\\u200f")
        await until_shown(pilot, 'breaks.py", line 1, in <module>')
