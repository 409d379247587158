"""Discovery of plugins, and whether each may be loaded, before any code of a plugin has run."""

import os
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from pertoken.advisor.rules.discovery import Permission, Plugin, disable, disabled, enable, find_rules
from pertoken.errors import BadInput
from tests.advisor.rules.builders import settings, written

BROKEN_IF_RUN = "raise SystemExit('code of a plugin ran')"


def files(places: tuple[Plugin, ...]) -> dict[str, tuple[Permission, str | None]]:
    return {place.name: (place.permission, place.reason) for place in places if place.file is not None}


def installed_package(folder: Path, name: str = "Acme_Rules") -> None:
    """Return a distribution on `sys.path` with one entry point, whose module ends the process when it is imported."""
    (folder / f"{name}-1.2.dist-info").mkdir(parents=True)
    (folder / f"{name}-1.2.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (folder / f"{name}-1.2.dist-info/entry_points.txt").write_text("[pertoken.rules]\nacme-rule = acme_rule\n")
    (folder / "acme_rule.py").write_text(BROKEN_IF_RUN)
    assert PathDistribution(folder / f"{name}-1.2.dist-info").version == "1.2"


def test_finding_rules_runs_none_of_their_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_package(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    written(tmp_path / "rules.d/mine.py").write_text(BROKEN_IF_RUN)
    places = {find_rule.name: find_rule for find_rule in find_rules(settings(tmp_path))}
    assert (places["acme-rule"].distribution, places["acme-rule"].version) == ("Acme_Rules", "1.2")
    assert places["acme-rule"].origin == "Acme_Rules 1.2"
    assert places["mine"].file == tmp_path / "rules.d/mine.py"
    assert places["quantize-weights"].distribution == "pertoken"


def test_files_of_the_drop_in_folder_and_those_that_a_setting_names_are_found_in_every_run(tmp_path: Path) -> None:
    written(tmp_path / "rules.d/dropped.py")
    written(tmp_path / "rules.d/_helper.py")
    written(tmp_path / "shared/first.py")
    written(tmp_path / "shared/second.py")
    written(tmp_path / "single.py")
    known = settings(tmp_path, '[advisor]\nrules = ["shared", "single.py"]')
    assert list(files(find_rules(known))) == ["dropped", "first", "second", "single"]
    assert [find_rule.name for find_rule in find_rules(known)][-4:] == ["dropped", "first", "second", "single"]


def test_a_missing_file_named_by_a_setting_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    known = settings(tmp_path, '[advisor]\nrules = ["gone.py"]')
    (plugin,) = [find_rule for find_rule in find_rules(known) if find_rule.file is not None]
    assert (plugin.permission, plugin.fault) == (Permission.MISSING, plugin.reason)
    assert plugin.reason == (
        f"{tmp_path}/gone.py: no such file or folder; {tmp_path}/pertoken.toml: advisor.rules names it"
    )


@pytest.mark.parametrize(
    ("path", "mode"), [("rules.d/mine.py", 0o646), ("rules.d", 0o757), ("named/mine.py", 0o666), ("named", 0o777)]
)
def test_a_file_or_folder_that_every_user_may_write_is_refused_in_one_line(
    tmp_path: Path, path: str, mode: int
) -> None:
    written(tmp_path / "rules.d/mine.py")
    written(tmp_path / "named/mine.py")
    (tmp_path / path).chmod(mode)
    known = settings(tmp_path, '[advisor]\nrules = ["named"]')
    (refused,) = [find_rule for find_rule in find_rules(known) if find_rule.permission is Permission.DENIED]
    assert refused.fault == (f"{tmp_path / path}: not loaded: every user may write it; take that away (`chmod o-w`)")


def test_a_link_is_as_safe_as_the_folder_it_leads_to(tmp_path: Path) -> None:
    target = written(tmp_path / "open/mine.py")
    target.parent.chmod(0o777)
    (tmp_path / "rules.d").mkdir(mode=0o755)
    (tmp_path / "rules.d/mine.py").symlink_to(target)
    (permission, reason) = files(find_rules(settings(tmp_path)))["mine"]
    assert permission is Permission.DENIED and reason is not None and f"{tmp_path}/open: not loaded" in reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(written(tmp_path / "rules.d/mine.py"), 12345, -1)
    (permission, reason) = files(find_rules(settings(tmp_path)))["mine"]
    assert permission is Permission.DENIED and reason is not None and "user 12345 owns it" in reason


def test_a_file_of_root_is_as_good_as_one_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "rules.d/mine.py")
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    expected = Permission.ALLOWED if own == 0 else Permission.DENIED
    assert files(find_rules(settings(tmp_path)))[("mine" if own == 0 else "rules.d")][0] is expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('allow = ["other"]', "advisor.allow does not name Acme_Rules"),
        ("allow = []", "advisor.allow does not name Acme_Rules"),
        ('deny = ["acme.rules"]', "advisor.deny names Acme_Rules"),
        ('allow = ["acme-rules"]\ndeny = ["acme-rules"]', "advisor.deny names Acme_Rules"),
        ('allow = ["ACME-rules"]', None),
        ('deny = ["acme"]', None),
    ],
)
def test_distributions_are_allowed_and_denied_by_their_normalized_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str | None
) -> None:
    installed_package(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    places = {find_rule.name: find_rule for find_rule in find_rules(settings(tmp_path, f"[advisor]\n{text}"))}
    assert places["acme-rule"].reason == reason
    assert places["acme-rule"].fault is None
    assert places["use-spot"].permission is Permission.ALLOWED


def test_the_rules_of_pertoken_itself_can_be_denied(tmp_path: Path) -> None:
    places = find_rules(settings(tmp_path, '[advisor]\ndeny = ["pertoken"]'))
    assert {place.permission for place in places if place.distribution == "pertoken"} == {Permission.DENIED}


def test_a_rule_that_is_switched_off_is_not_loaded_until_it_is_switched_on(tmp_path: Path) -> None:
    known = settings(tmp_path)
    disable(tmp_path, "use-spot")
    disable(tmp_path, "mine")
    assert disabled(tmp_path) == ("use-spot", "mine")
    places = {find_rule.name: find_rule for find_rule in find_rules(known)}
    assert places["use-spot"].permission is Permission.DISABLED and places["use-spot"].fault is None
    enable(tmp_path, "use-spot")
    assert {find_rule.permission for find_rule in find_rules(known) if find_rule.name == "use-spot"} == {
        Permission.ALLOWED
    }
    assert disabled(tmp_path) == ("mine",)


def test_the_list_of_disabled_rules_may_be_written_by_hand(tmp_path: Path) -> None:
    (tmp_path / "disabled-rules.txt").write_text("# mine\nuse-spot  # too risky\n\nuse-spot\n")
    assert disabled(tmp_path) == ("use-spot",)
    (tmp_path / "disabled-rules.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"disabled-rules\.txt: cannot be read"):
        disabled(tmp_path)


def test_a_file_on_trial_is_run_once_even_if_it_lies_in_the_drop_in_folder(tmp_path: Path) -> None:
    file = written(tmp_path / "rules.d/mine.py")
    disable(tmp_path, "mine")
    (plugin,) = [find_rule for find_rule in find_rules(settings(tmp_path), (file,)) if find_rule.file is not None]
    assert plugin.tried and plugin.permission is Permission.ALLOWED
    with pytest.raises(BadInput, match=r"--rule gone\.py: no such file"):
        find_rules(settings(tmp_path), (Path("gone.py"),))


def test_built_in_rules_are_found_first_so_that_no_other_takes_their_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed_package(tmp_path / "site", "aaa")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    distributions = [find_rule.distribution for find_rule in find_rules(settings(tmp_path))]
    assert distributions[:1] == ["pertoken"] and distributions[-1:] == ["aaa"]
