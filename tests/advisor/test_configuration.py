"""Configuration that stored advice belongs to."""

from pathlib import Path

import pytest

from pertoken.advisor.configuration import (
    KEYS,
    Configuration,
    check,
    claim,
    configuration_of,
    difference,
    stored_configuration,
)
from pertoken.config import Settings, load
from pertoken.errors import BadInput
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.repository import AdviceRepository
from tests.values import new_store

USED = Configuration("/etc/pertoken/pertoken.toml", "11")
OTHER = Configuration("/home/me/pertoken.toml", "22")


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    return new_store(tmp_path / "db")


def take(where: StoreLocation, used: Configuration, *, adopt: bool = False) -> str | None:
    return claim(AdviceRepository(where), used, 1, "me", adopt=adopt)


def test_the_first_run_names_the_configuration_and_another_is_refused(where: StoreLocation) -> None:
    assert stored_configuration(where) is None and take(where, USED) is None
    assert stored_configuration(where) == USED
    check(where, USED)
    with pytest.raises(BadInput) as error:
        check(where, OTHER)
    assert all(text in str(error.value) for text in (USED.source, OTHER.source, "--adopt-config"))
    with pytest.raises(BadInput, match="belongs to another configuration"):
        take(where, OTHER)
    assert stored_configuration(where) == USED


def test_an_edit_of_the_same_file_is_followed_and_reported(where: StoreLocation) -> None:
    take(where, USED)
    edited = Configuration(USED.source, "12")
    check(where, edited)
    assert USED.source in (take(where, edited) or "")
    assert stored_configuration(where) == edited and take(where, edited) is None


def test_equal_settings_of_another_file_are_no_other_configuration(where: StoreLocation) -> None:
    take(where, USED)
    moved = Configuration(OTHER.source, USED.digest)
    check(where, moved)
    assert take(where, moved) is None and stored_configuration(where) == USED


def test_adoption_names_both_configurations(where: StoreLocation) -> None:
    take(where, USED)
    line = take(where, OTHER, adopt=True)
    assert line is not None and USED.source in line and OTHER.source in line
    assert stored_configuration(where) == OTHER
    with pytest.raises(BadInput):
        check(where, USED)


def test_a_refusal_names_the_file_and_the_variables_that_would_be_accepted(where: StoreLocation) -> None:
    take(where, Configuration("/etc/pertoken/pertoken.toml with PERTOKEN_SLO_TTFT_MS", "33"))
    with pytest.raises(BadInput, match=r"with --config /etc/pertoken/pertoken.toml and the same PERTOKEN_SLO_TTFT_MS,"):
        check(where, OTHER)


def test_a_database_without_advice_has_no_configuration(tmp_path: Path) -> None:
    nowhere = locate(str(tmp_path / "none"))
    assert stored_configuration(nowhere) is None
    check(nowhere, USED)


def test_a_difference_is_a_sentence_for_readers() -> None:
    assert difference(None, USED) is None and difference(USED, Configuration("/elsewhere", "11")) is None
    assert "not those of the last advice run" in (difference(USED, Configuration(USED.source, "12")) or "")
    assert USED.source in (difference(USED, OTHER) or "") and OTHER.source in (difference(USED, OTHER) or "")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("", True),
        ("[screens]\ntheme = 'light'\n[agent]\ninterval = '1s'\n", True),
        ("[slo]\ntpot_ms = 40\n", False),
        ("[market]\nprovider = 'aws'\n", False),
        ("[advisor]\nforbid = ['model']\n", False),
        ("[services.chat]\nmin_replicas = 2\n", False),
        ("[rules.batch-limit]\nx = 1\n", False),
        ("[energy]\nusd_per_kwh = 0.2\n", False),
    ],
)
def test_only_settings_that_change_advice_are_in_the_digest(tmp_path: Path, text: str, same: bool) -> None:
    file = tmp_path / "pertoken.toml"
    file.write_text("")
    plain = configuration_of(load(file, {}))
    file.write_text(text)
    edited = configuration_of(load(file, {}))
    assert edited.source == plain.source == str(file)
    assert (edited.digest == plain.digest) is same


def test_a_rule_that_was_switched_off_is_other_advice(tmp_path: Path) -> None:
    file = tmp_path / "pertoken.toml"
    file.write_text("")
    before = configuration_of(load(file, {}))
    (tmp_path / "disabled-rules.txt").write_text("batch-limit\n")
    assert configuration_of(load(file, {})).digest != before.digest


def test_variables_that_change_advice_are_a_part_of_the_source(tmp_path: Path) -> None:
    file = tmp_path / "pertoken.toml"
    file.write_text("")
    environment = {"PERTOKEN_SLO_TTFT_MS": "500", "PERTOKEN_DB": str(tmp_path), "PERTOKEN_SCREENS_THEME": "light"}
    assert configuration_of(load(file, environment)).source == f"{file} with PERTOKEN_SLO_TTFT_MS"


def test_a_link_to_a_file_is_named_and_not_its_target(tmp_path: Path) -> None:
    (tmp_path / "first.toml").write_text("")
    link = tmp_path / "pertoken.toml"
    link.symlink_to("first.toml")
    assert configuration_of(load(link, {})).source == str(link)


def test_each_key_is_a_setting_and_sections_about_money_are_complete() -> None:
    keys = {key.attribute: key.section for key in Settings.table()}
    assert set(KEYS) <= set(keys)
    carbon = {"energy_grid", "energy_embodied_g_per_hour"}
    assert {name for name, section in keys.items() if section in ("slo", "market", "energy")} - carbon <= set(KEYS)
