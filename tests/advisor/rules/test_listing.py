"""What is listed of rules that were loaded in workers, and the page of each."""

from pathlib import Path

import pytest

from pertoken.advisor.rules.listing import Entry, entries, listed, page
from pertoken.advisor.rules.switches import disable
from pertoken.advisor.worker.limits import Limits
from pertoken.errors import BadInput
from tests.advisor.rules.builders import settings, written
from tests.advisor.rules.test_load import OPTIONS

LIMITS = Limits(call_s=2.0, plugin_s=4.0)


def of_files(folder: Path, text: str = "") -> dict[str, Entry]:
    return {each.id: each for each in entries(listed(settings(folder, text), LIMITS)) if each.origin != "pertoken"}


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
    assert "runs once per service · loaded" in page("use-spot", listed(settings(tmp_path), LIMITS))


def test_an_error_without_a_text_is_listed_all_the_same(tmp_path: Path) -> None:
    written(tmp_path / "rules.d/mine.py").write_text("class Mute(Exception):\n    __str__ = None\nraise Mute")
    (entry,) = of_files(tmp_path).values()
    assert (entry.id, entry.state, bool(entry.reason)) == ("mine", "broken", True)


def test_the_page_of_a_rule_has_its_options_as_they_are_set(tmp_path: Path) -> None:
    written(tmp_path / "rules.d/mine.py", parameters="seen, now, options: Options", before=OPTIONS)
    known = listed(settings(tmp_path, "[rules.own-rule]\nshare = 0.25"), LIMITS)
    text = page("own-rule", known)
    assert "runs once per deployment · loaded" in text
    assert "  share = 0.25 (default: 0.5)\n    of the cache; a number from 0 to 1\n" in text
    with pytest.raises(BadInput, match="did you mean own-rule"):
        page("own-rul", known)


def test_the_page_of_a_plugin_that_did_not_load_shows_where_it_was_and_what_it_printed(tmp_path: Path) -> None:
    written(tmp_path / "rules.d/mine.py").write_text("print('begun', flush=True)\nwhile True:\n    pass")
    text = page("mine", listed(settings(tmp_path), LIMITS))
    assert "the plugin took longer than 2 s before it was loaded" in text
    assert "It printed\n  begun\n" in text and 'mine.py", line' in text
