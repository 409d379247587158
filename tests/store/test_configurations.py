"""Configurations that stored advice belonged to."""

from pathlib import Path

from pertoken.store.repository import AdviceRepository, add_configuration, last_configuration
from tests.values import new_store


def test_the_configuration_that_was_added_last_counts(tmp_path: Path) -> None:
    with AdviceRepository(new_store(tmp_path)).writing() as connection:
        assert list(last_configuration(connection)) == []
        for source in ("b.toml", "a.toml"):
            add_configuration(connection, source=source, digest="12", set_ts=1, set_by="me")
        (row,) = last_configuration(connection)
    assert (row.configuration_id, row.source) == (2, "a.toml")
