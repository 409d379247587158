import pytest

from pertoken.plugins.common import is_newer, judged, percent
from pertoken.rule import version_numbers
from pertoken.testing import earlier


@pytest.mark.parametrize(
    ("version", "known"),
    [("0.31.0", (0, 31, 0)), ("v0.9.2.post1", (0, 9, 2)), ("b6721-0c1e570", (6721,)), ("main", None), (None, None)],
)
def test_a_version_is_ordered_by_the_numbers_it_begins_with(version: str | None, known: tuple[int, ...] | None) -> None:
    assert version_numbers(version) == known


def test_only_versions_with_numbers_are_known_to_be_newer() -> None:
    assert is_newer("0.32.0", "0.9.2") and not is_newer("0.9.2", "0.32.0") and not is_newer("main", "0.9.2")


def test_of_several_epochs_of_a_version_the_newest_comparable_one_counts_whatever_it_shows() -> None:
    high, low, unknown = earlier("1", (1.5, 1.6, 1.7)), earlier("1", (0.9, 1.0, 1.1)), earlier("1")
    assert judged([high, low, unknown]) == (low,)
    assert judged([unknown, earlier("2")]) == (unknown, earlier("2"))


def test_a_ratio_is_shown_as_more_or_less() -> None:
    assert (percent(1.33), percent(0.8)) == ("33% more", "20% less")
