"""List of rules that were loaded in workers, and their pages."""

from pathlib import Path

import pytest

from pertoken.advisor.rules.discovery import disable
from pertoken.advisor.rules.listing import RuleEntry, entries, listed, page
from pertoken.advisor.worker.child import RuleLimits
from pertoken.errors import BadInput
from tests.advisor.rules.builders import settings, written
from tests.advisor.rules.test_load import OPTIONS
from tests.advisor.sources import source

LIMITS = RuleLimits(call_s=2.0, plugin_s=4.0)


def of_files(folder: Path, text: str = "") -> dict[str, RuleEntry]:
    return {entry.id: entry for entry in entries(listed(settings(folder, text), LIMITS)) if entry.origin != "pertoken"}


def test_a_place_that_may_not_be_loaded_has_no_title_and_no_confinement(tmp_path: Path) -> None:
    written(tmp_path / "rules.d/open.py", mode=0o666)
    (entry,) = of_files(tmp_path).values()
    assert (entry.id, entry.title, entry.state, entry.confinement) == ("open", None, "denied", None)


def test_a_rule_that_is_switched_off_is_listed_with_its_title(tmp_path: Path) -> None:
    written(tmp_path / "rules.d/mine.py", before="raised = []")
    disable(tmp_path, "own-rule")
    entry = of_files(tmp_path)["own-rule"]
    assert (entry.title, entry.state) == ("Does a thing.", "disabled")
    assert entry.reason == "switched off; `pertoken rules enable own-rule` switches it on"


def test_an_id_that_is_taken_is_broken_beside_the_one_that_has_it(tmp_path: Path) -> None:
    written(tmp_path / "rules.d/mine.py", "use-spot")
    entry = of_files(tmp_path)["use-spot"]
    assert (entry.state, "is already provided by pertoken" in (entry.reason or "")) == ("broken", True)
    assert "runs once per service over the last 7d · loaded" in page("use-spot", listed(settings(tmp_path), LIMITS))


def test_an_error_without_a_text_is_listed_all_the_same(tmp_path: Path) -> None:
    written(tmp_path / "rules.d/mine.py").write_text("class Mute(Exception):\n    __str__ = None\nraise Mute")
    (entry,) = of_files(tmp_path).values()
    assert (entry.id, entry.state, bool(entry.reason)) == ("mine", "broken", True)


def test_the_page_of_a_rule_has_its_options_as_they_are_set(tmp_path: Path) -> None:
    written(tmp_path / "rules.d/mine.py", parameters="seen, now, options: Options", before=OPTIONS)
    known = listed(settings(tmp_path, "[rules.own-rule]\nshare = 0.25"), LIMITS)
    text = page("own-rule", known)
    assert "runs once per deployment over the last 7d · loaded" in text
    assert "  share = 0.25 (default: 0.5)\n    of the cache; a number from 0 to 1\n" in text
    with pytest.raises(BadInput, match="did you mean own-rule"):
        page("own-rul", known)


@pytest.mark.usefixtures("own_processes")
def test_the_page_of_a_plugin_that_did_not_load_shows_where_it_was_and_what_it_printed(tmp_path: Path) -> None:
    written(tmp_path / "rules.d/mine.py").write_text("print('begun', flush=True)\nwhile True:\n    pass")
    text = page("mine", listed(settings(tmp_path), LIMITS))
    assert "the plugin took longer than 2 s before it was loaded" in text
    assert "It printed\n  begun\n" in text and 'mine.py", line' in text


def test_a_rule_is_listed_and_explained_with_the_window_it_looks_at(tmp_path: Path) -> None:
    place = settings(tmp_path, '[advisor]\nsince = "2d"')
    listing = listed(place, LIMITS)
    windows = {entry.id: entry.window_s for entry in entries(listing)}
    assert (windows["use-spot"], windows["stuck-engine"]) == (2 * 86_400, 3600)
    assert "runs once per deployment over the last 1h · loaded" in page("stuck-engine", listing)


def test_a_window_that_cannot_be_is_the_error_of_its_file(tmp_path: Path) -> None:
    text = source("return []").replace('@rule("own-rule")', '@rule("own-rule", window="2y")')
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d/mine.py").write_text(text)
    entry = of_files(tmp_path)["mine"]
    assert entry.state == "broken"
    assert entry.reason == (
        "ValueError: rule own-rule: window='2y': '2y' is not a duration: write it with a unit, like 10s, 5m, 24h or "
        '30d; use from 1m to 28d, such as "1h"'
    )
