"""Clouds as hosts see them."""

import pytest

from pertoken.catalog.clouds import MetadataPage, cloud_of, clouds


@pytest.mark.parametrize("cloud", clouds(), ids=lambda cloud: cloud.name)
def test_each_cloud_is_known_by_its_own_firmware_alone(cloud: object) -> None:
    known = next(row for row in clouds() if row is cloud)
    assert cloud_of(known.dmi) is known
    assert known.source and known.as_of


def test_a_host_of_ones_own_is_of_no_cloud() -> None:
    assert cloud_of({"sys_vendor": "Supermicro", "product_name": "AS-8125GS"}) is None


def test_an_unexpected_metadata_page_is_unknown() -> None:
    page = MetadataPage("/zone", r"projects/\d+/zones/([a-z0-9-]+)")
    assert page.part(" projects/7/zones/us-central1-a\n") == "us-central1-a"
    assert page.part("<html>") is None
