import pytest

from tools.docs.pages import FOLDER, pages


@pytest.mark.parametrize(
    "name", ["cli.md", "settings.md", "rules.md", "keys.md", "schema.md", "engines.md", "forecast.md"]
)
def test_generated_pages_say_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text()
    assert written == pages()[name], "run `python -m tools.docs`"
