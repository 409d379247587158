"""Claims of the README: its commands exist, its rule runs, its files exist."""

import re
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner

from pertoken.advisor.rules.discovery import rules_in
from pertoken.cli import main
from pertoken.proof.recommendation import State
from pertoken.rule import Deployment, Rule, Skip
from tests.advisor.gathered import advised, gathered
from tests.savings.fleets import context, evidence, llama, low_batch, replicas
from tools.pictures.recording import SCENES, animated

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


def shown_rule(folder: Path) -> Rule:
    (example,) = blocks("python")
    file = folder / "lower_context_limit.py"
    file.write_text(example)
    (rule,) = rules_in(file)
    return rule


@pytest.mark.parametrize("limit", [None, 512, 1024, 2048, 4096, 8192, 131_072])
@pytest.mark.parametrize(("prompt", "output"), [(100, 50), (900, 300), (2000, 2000), (100_000, 8_000)])
def test_the_rule_of_the_readme_shortens_only_unused_contexts(
    tmp_path: Path, limit: int | None, prompt: float, output: float
) -> None:
    now = llama(1, (10, 11), max_model_len=limit)
    (yielded,) = shown_rule(tmp_path)(seen=evidence(prompt_len=prompt, generated_len=output), now=now)
    if isinstance(yielded, Deployment):
        assert limit is not None and yielded.max_model_len is not None
        assert 2 * (prompt + output) <= yielded.max_model_len < limit
        assert yielded == now.but(max_model_len=yielded.max_model_len)
    else:
        assert isinstance(yielded, Skip)
        assert limit is None or limit <= max(1024, 4 * (prompt + output))


def test_proposals_of_the_example_rule_are_priced_like_any_other(tmp_path: Path) -> None:
    fleet = replicas(2)
    known = context(fleet, low_batch(prompt_len=900, generated_len=100))
    proposals = advised(gathered(fleet, known), shown_rule(tmp_path))
    assert [proposal.state for proposal in proposals] == [State.REFUSED] * 2
    assert {proposal.reason for proposal in proposals} == {
        "context limit 8192 → 2048 on 1 of 2 replicas: the forecast shows no saving: $0 of the bill and $0 of "
        "capacity a month, at 1.00 (0.78 to 1.28) times the tokens/s"
    }


def test_the_files_it_links_to_are_there() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_its_recording_shows_each_screen_in_turn_and_loads_nothing() -> None:
    (picture,) = re.findall(r"!\[[^\]]+\]\((\S+\.svg)\)", README)
    text = (ROOT / picture).read_text()
    ElementTree.fromstring(text)
    assert text.count('<g class="frame">') == len(SCENES) > 3
    assert "<script" not in text and "@font-face" not in text and "@import" not in text
    assert not re.search(r"(href|src)=|url\((?!#)", text), "it loads something"


def test_a_recording_shows_one_frame_at_a_time_and_the_first_to_who_wants_no_motion() -> None:
    frames = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><text>{n}</text></svg>' for n in range(4)]
    text = animated(frames, 5)
    assert 'viewBox="0 0 9 9"' in text and "25%{visibility:hidden}" in text and "turn 20s" in text
    assert "step-end infinite}" in text, "a frame that waits for its turn is hidden"
    assert ".frame:nth-of-type(4){animation-delay:15s}" in text and "prefers-reduced-motion:no-preference" in text
    assert ".frame:first-of-type{visibility:visible}" in text
