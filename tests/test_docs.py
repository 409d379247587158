import pytest

from docs import generate


@pytest.mark.parametrize(
    "name", ["cli.md", "settings.md", "rules.md", "keys.md", "schema.md", "engines.md", "forecast.md"]
)
def test_generated_pages_say_what_the_code_says(name: str) -> None:
    written = (generate.HERE / name).read_text()
    assert written == generate.pages()[name], "run `python -m docs.generate`"
