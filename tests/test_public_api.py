from tests.public_api import GOLDEN, text


def test_the_public_api_of_plugins_changes_only_on_purpose() -> None:
    assert text() == GOLDEN.read_text(), "if that is meant: `python -m tests.public_api`, and a line in CHANGELOG.md"
