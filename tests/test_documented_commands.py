"""Commands in the blocks of README and docs: each is run over a seeded database, or listed with the reason why not."""

import re
import shlex
import time
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pertoken.cli import main
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted((ROOT / "docs").glob("*.md"))
NOT_RUN: dict[str, str] = tomllib.loads((ROOT / "tests/documented_commands.toml").read_text())["not_run"]
SERVICE = "meta-llama/Llama-3.3-70B-Instruct"
"""Service of the seeded database, in place of the one that pages name."""
PLACEHOLDERS = {"ID": "use-spot"}
GATED = 1
"""Status of a command with --fail-on whose condition holds."""


def commands(page: Path) -> list[str]:
    """Return the commands of a page's shell blocks, without comments and the folder of the program."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    texts = (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines)
    return [re.sub(r"^(sudo )?\S*bin/(?=pertoken )", "", text) for text in texts if text]


def reason(command: str) -> str | None:
    """Return why a command is not run, by the longest entry that it begins with."""
    entries = [entry for entry in NOT_RUN if command.startswith(entry)]
    return NOT_RUN[max(entries, key=len)] if entries else None


def arguments(command: str) -> list[str]:
    """Return the arguments of a command of this program, without where its output goes."""
    words = shlex.split(re.sub(r" > [\w.]+$", "", command))
    words = words[next(number for number, word in enumerate(words) if word == "pertoken") + 1 :]
    return [re.sub(r"^chat(?=:)|(?<=service=)chat", SERVICE, PLACEHOLDERS.get(word, word)) for word in words]


def parsed(words: list[str]) -> None:
    """Parse arguments as the program does. Raises click.ClickException."""
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    command.parse_args(context, list(words))


EVERY = [(page, command) for page in PAGES for command in commands(page)]


def test_every_command_of_this_program_has_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("log.json", "first_rule.py", "november.parquet"):
        Path(name).touch()
    own = [command for _, command in EVERY if re.match(r"(\w+=\S+ )?pertoken ", command)]
    assert len(own) > 50
    for command in own:
        parsed(arguments(command))


def test_every_command_is_run_or_listed_with_a_reason_and_nothing_else_is_listed() -> None:
    unknown = [command for _, command in EVERY if reason(command) is None and not command.startswith("pertoken ")]
    assert unknown == [], "run it, or list it in tests/documented_commands.toml"
    unused = [entry for entry in NOT_RUN if not any(command.startswith(entry) for _, command in EVERY)]
    assert unused == []


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with an hour of telemetry and advice on it."""
    folder = tmp_path_factory.mktemp("documented") / "db"
    end_ts = int(time.time()) // 60 * 60
    seed(new_store(folder), LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=60, end_ts=end_ts)
    done = CliRunner().invoke(main, ["advise", "--db", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if any(reason(command) is None for command in commands(page))])
def test_the_commands_of_a_page_run_in_their_order(
    page: Path, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PERTOKEN_DB", str(recorded))
    for command in commands(page):
        if reason(command) is not None:
            continue
        words = [str(recorded) if word in ("DIR", "./history") else word for word in arguments(command)]
        done = CliRunner().invoke(main, words, input="y\n")
        assert done.exit_code in ((0, GATED) if "--fail-on" in words else (0,)), f"{command}: {done.output}"
