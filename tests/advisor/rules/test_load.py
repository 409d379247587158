from pathlib import Path
from types import SimpleNamespace

import pytest

from pertoken.advisor.rules.discovery import disable, find_rules, load, rules_of, unknown_options
from pertoken.advisor.worker.child import Loaded
from pertoken.config import Settings
from pertoken.rule import Rule
from tests.advisor.rules.builders import settings, written
from tests.advisor.sources import source

OPTIONS = """
from dataclasses import dataclass
from typing import Literal
from pertoken.rule import option

@dataclass(frozen=True)
class Options:
    share: float = option(0.5, "of the cache", low=0, high=1)
    method: Literal["eagle", "ngram"] = option("ngram", "how tokens are drafted")
"""


def of_files(known: Settings) -> list[Loaded]:
    return [one for find_rule in find_rules(known) if find_rule.file is not None for one in load(find_rule, known)]


def test_a_rule_made_without_its_decorator_is_checked_when_it_is_loaded() -> None:
    made = Rule("NO ID\ud800", lambda: (), (5, "colour"), "", {})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="use lower-case words"):
        rules_of(SimpleNamespace(made=made))


@pytest.mark.parametrize("before", ["", "from __future__ import annotations\n"])
def test_a_loaded_rule_has_its_options_as_the_configuration_file_sets_them(tmp_path: Path, before: str) -> None:
    text = source("return []", "seen, now, options: Options", before=OPTIONS)
    (tmp_path / "rules.d").mkdir()
    (tmp_path / "rules.d/mine.py").write_text(before + text)
    (loaded,) = of_files(settings(tmp_path, "[rules.own-rule]\nshare = 0.25"))
    assert loaded.error is None
    ((share, method),) = [(rule.options.share, rule.options.method) for rule in loaded.rules]
    assert (share, method) == (0.25, "ngram")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("share = 3", "share: must be a number from 0 to 1 (got 3)"),
        ('method = "medusa"', "method: must be one of eagle, ngram (got 'medusa')"),
        ("shares = 1", "shares: no such option; there are share, method"),
    ],
)
def test_a_wrong_option_is_one_line_with_file_key_and_allowed_values_and_stops_only_its_rule(
    tmp_path: Path, line: str, reason: str
) -> None:
    before = OPTIONS + source("return []", rule_id="second").replace("def propose", "def second")
    written(tmp_path / "rules.d/mine.py", parameters="seen, now, options: Options", before=before, body="return []")
    loaded = of_files(settings(tmp_path, f"[rules.own-rule]\n{line}"))
    assert [rule.rule_id for plugin in loaded for rule in plugin.rules] == ["second"]
    assert [(plugin.name, plugin.error) for plugin in loaded if plugin.error] == [
        ("own-rule", f"{tmp_path}/pertoken.toml: rules.own-rule.{reason}")
    ]


def test_options_of_a_rule_that_is_not_there_are_reported(tmp_path: Path) -> None:
    known = settings(tmp_path, "[rules.quantise-weights]\nfew_running = 3")
    assert unknown_options(["use-spot", "quantize-weights"], known) == (
        f"{tmp_path}/pertoken.toml: rules.quantise-weights: no rule has this id (did you mean quantize-weights?)",
    )


def test_one_rule_of_a_module_is_switched_off_by_its_id_alone(tmp_path: Path) -> None:
    second = source("return []", rule_id="second").replace("def propose", "def second")
    written(tmp_path / "rules.d/mine.py", before=second)
    disable(tmp_path, "second")
    (loaded,) = of_files(settings(tmp_path))
    assert [rule.rule_id for rule in loaded.rules] == ["own-rule"]
    assert [rule.rule_id for rule in loaded.disabled] == ["second"]


def test_files_of_one_name_in_two_folders_are_two_modules(tmp_path: Path) -> None:
    written(tmp_path / "rules.d/mine.py", "first")
    written(tmp_path / "other/mine.py", "second")
    loaded = of_files(settings(tmp_path, '[advisor]\nrules = ["other"]'))
    assert [rule.rule_id for plugin in loaded for rule in plugin.rules] == ["first", "second"]


def test_a_file_that_may_not_be_loaded_is_an_error_and_a_switched_off_one_is_none(tmp_path: Path) -> None:
    written(tmp_path / "rules.d/open.py", mode=0o666)
    written(tmp_path / "rules.d/off.py", "second")
    disable(tmp_path, "off")
    loaded = {file.name: file for file in of_files(settings(tmp_path))}
    assert loaded["off"].error is None and not loaded["off"].rules
    assert loaded["open"].error is not None and "every user may write it" in loaded["open"].error
