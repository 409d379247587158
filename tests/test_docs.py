import re
import tomllib

import pytest

from benchmarks.agent import scrape
from pertoken.agent.scrape import Parser
from tools.docs import figures
from tools.docs.pages import FOLDER, pages


@pytest.mark.parametrize(
    "name", ["cli.md", "settings.md", "rules.md", "keys.md", "schema.md", "engines.md", "supported.md", "forecast.md"]
)
def test_generated_pages_are_those_of_the_code(name: str) -> None:
    written = (FOLDER / name).read_text()
    assert written == pages()[name], "run `python -m tools.docs`"


@pytest.mark.parametrize("name", figures.PAGES)
def test_figures_of_hand_written_pages_are_those_of_the_newest_committed_results(name: str) -> None:
    written = (figures.ROOT / name).read_text()
    assert "<!-- figures " in written
    assert written == figures.filled(written), "run `python -m tools.docs`"


_FIGURE = re.compile(r"(?<![\w.])\d[\d,.]*\s?(?:%|ms|µs|s|seconds|minutes|MiB|GiB|MB|GB|min|times)(?![\w/])")
_MEASURED = re.compile(r"benchmarks[./]\w|\b(took|takes about|of (a|one) core|cores)\b")
BARE = {
    "docs/how-savings-are-proven.md": ["500 times", "15 %", "0.3 %", "20 %", "500 times", "8 %", "2 %"],
    "docs/proof.md": ["30 minutes"],
}
"""Inputs of a benchmark (effects and residuals that it simulates) and defaults, not results."""


PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", *sorted(f"docs/{page.name}" for page in FOLDER.glob("*.md"))]
FIRST_SCREEN = 25
"""Lines that a reader sees first."""


def bare_figures(text: str) -> list[str]:
    """Return the figures of cost, time or error in paragraphs on a measurement that no result fills."""
    text = re.sub(r"<!-- figures .*?<!-- end of figures -->|```.*?```", "", text, flags=re.DOTALL)
    paragraphs = [paragraph for paragraph in text.split("\n\n") if _MEASURED.search(paragraph)]
    return [figure for paragraph in paragraphs for figure in _FIGURE.findall(paragraph)]


@pytest.mark.parametrize("name", PAGES)
def test_no_page_states_a_result_of_a_benchmark_that_was_typed_by_hand(name: str) -> None:
    text = (figures.ROOT / name).read_text()
    if "Written by `python -m tools.docs`" in text:
        return
    assert bare_figures(text) == BARE.get(name, []), "put it into a block of tools/docs/figures.py"


def missing_on_first_screen(text: str) -> list[str]:
    """Return which of the purpose and the first command a page does not have in its first lines."""
    first = re.sub(r"<!--.*?-->", "", "\n".join(text.splitlines()[:FIRST_SCREEN]), flags=re.DOTALL)
    _, *blocks = [block for block in first.split("\n\n") if block.strip()]
    prose = bool(blocks) and re.match(r"\s*(#|\||```|- |!\[)", blocks[0]) is None
    command = re.search(r"^```|`[^`]*(pertoken|python -m|pytest) [^`]*`", first, re.MULTILINE)
    return [name for name, present in (("purpose", prose), ("command", command)) if not present]


@pytest.mark.parametrize("name", PAGES)
def test_each_page_begins_with_its_purpose_and_a_command(name: str) -> None:
    assert missing_on_first_screen((figures.ROOT / name).read_text()) == []


def test_a_page_that_begins_with_a_table_or_without_a_command_is_noticed() -> None:
    assert missing_on_first_screen("# Page\n\n| a | b |\n\nRun `pertoken up`.") == ["purpose"]
    assert missing_on_first_screen("# Page\n\nThis page lists colours." + "\n" * 30 + "```sh\n```") == ["command"]


def test_a_result_typed_by_hand_is_noticed() -> None:
    assert bare_figures("`python -m benchmarks.window` took 44 s and 376 MiB.") == ["44 s", "376 MiB"]
    assert not bare_figures("An interval of 10 s.\n\n<!-- figures x -->benchmarks.x 1 s<!-- end of figures -->")


def test_the_agent_s_cost_is_published_at_both_intervals_with_and_without_discovery() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:5]] for line in figures.BLOCKS["agent"]().splitlines()[2:]]
    assert [row[:2] for row in rows] == [["1 s", "on"], ["1 s", "off"], ["10 s", "on"], ["10 s", "off"]]
    assert all(re.fullmatch(r"\d\.\d\d", row[3]) for row in rows)


def test_the_scrape_benchmark_compares_values_of_the_function_that_it_times() -> None:
    parser = Parser(scrape.ADAPTER.wanted)
    assert scrape.same_values(parser.parse)
    first = parser.parse(scrape.PAGES[0])
    assert not scrape.same_values(lambda page: first), "a parser that keeps old values is not noticed"


def test_the_architecture_page_has_the_layers_of_the_import_contract_in_their_order() -> None:
    contract = tomllib.loads((figures.ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    level = {name.strip(): number for number, line in enumerate(contract["layers"]) for name in line.split("|")}
    page = (FOLDER / "architecture.md").read_text()
    table = page.partition("| layer |")[2].partition("\n\n")[0]
    cells = [line.split(" | ")[0] for line in table.splitlines()[2:]]
    named = [re.findall(r"`(\w+)`", cell) for cell in cells]
    levels = [level[name] for names in named for name in names]
    assert levels == sorted(levels), "a layer stands above one that it is below"
    for names, cell in zip(named, cells, strict=True):
        if "→" not in cell and "," not in cell:
            assert len({level[name] for name in names}) == 1, f"{names} are on one line, and not on one level"
    left_out = {name for name, number in level.items() if number <= level["settings"]} - {
        name for names in named for name in names
    }
    assert left_out == {"__main__"}
