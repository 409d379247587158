"""The README says what is true: its commands exist, its rule runs, its files are there."""

import re
from pathlib import Path

import click
from click.testing import CliRunner

from pertoken.advisor.rules import load_rules
from pertoken.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_its_two_set_up_commands_are_one_line_each() -> None:
    shell = "".join(blocks("sh"))
    assert "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/pertoken up\n" in shell
    assert "python3 -m venv .venv && .venv/bin/pip install -e '.[dev]' && .venv/bin/pytest\n" in shell


def test_every_command_and_option_it_names_exists() -> None:
    named = re.findall(r"`(?:\.venv/bin/)?pertoken ([a-z]+)(?: ([a-z|]+))?", README)
    assert len(named) >= 8
    for name, subcommands in named:
        command = main.commands[name]
        if isinstance(command, click.Group) and subcommands:
            assert set(subcommands.split("|")) <= set(command.commands), name
    for name, option in re.findall(r"pertoken ([a-z]+)`[^|\n]*\|[^|\n]*`(--[a-z]+)", README):
        assert option in CliRunner().invoke(main, [name, "--help"]).output, (name, option)


def test_the_rule_it_shows_loads(tmp_path: Path) -> None:
    (example,) = blocks("python")
    file = tmp_path / "shorter_context.py"
    file.write_text(example)
    loaded = load_rules((file,))[-1]
    assert loaded.error is None
    assert [rule.rule_id for rule in loaded.rules] == ["shorter-context"]


def test_the_files_it_links_to_are_there() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
