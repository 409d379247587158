"""`pertoken check` on real llama.cpp servers: the right sign, no false winner, and broken outputs."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pertoken.agent import load_probe
from tests.cli.builders import run
from tests.llama import LlamaServer, Shape, write_model

SHAPE = Shape(width=256, heads=4, layers=4, hidden=512)
STRICT = os.environ.get("PERTOKEN_CHECK_NULLS") == "1"
"""`PERTOKEN_CHECK_NULLS=1 python -m pytest -n 0 -s tests/cli/test_check.py`, on a machine that does nothing else,
compares two equal servers 20 times, and accepts no undecided outcome where there is a difference."""
EQUAL_PAIRS = 20 if STRICT else 1
SECONDS = "20" if STRICT else "3"
UNDECIDED = set() if STRICT else {"NOT_CALIBRATED"}
"""Outcome that a busy machine may leave, rightly: its noise hides any difference."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_probe, "IDLE_S", 0.1)
    if not STRICT:
        monkeypatch.setattr(load_probe, "BLOCKS", 8)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "full": write_model(folder / "full.gguf", shape=SHAPE),
        "quantized": write_model(folder / "quantized.gguf", shape=SHAPE, weights="Q8_0"),
        "broken": write_model(folder / "broken.gguf", shape=SHAPE, weights="Q8_0", answers="!"),
    }


@pytest.fixture(scope="module")
def servers(models: dict[str, Path]) -> Iterator[dict[str, str]]:
    with ExitStack() as running:
        yield {
            name: running.enter_context(LlamaServer(model, slots=1)).url
            for name, model in (*models.items(), ("full again", models["full"]))
        }


def checked(*words: str) -> tuple[int, dict[str, object]]:
    done = run("check", *words, "--yes", "--seconds", SECONDS, "--json")
    assert done.stdout, done.stderr
    values = json.loads(done.stdout)
    assert values["exit_status"] == done.exit_code
    return done.exit_code, values


def test_a_quantized_server_is_cheaper_and_the_full_one_dearer_than_its_file(
    servers: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "baseline.json"
    status, values = checked(servers["quantized"], "--against", servers["full"], "--save", str(file))
    assert values["outcome"] in {"CHEAPER", *UNDECIDED}, values["reason"]
    effect = values["effect"]
    assert isinstance(effect, dict) and effect["low"] < effect["likely"] < effect["high"]
    assert status != 0 or effect["high"] < 0
    assert isinstance(values["cached_share"], float) and values["cached_share"] < 0.05
    status, values = checked(servers["full"], "--baseline", str(file))
    assert values["outcome"] in {"DEARER", *UNDECIDED}, values["reason"]


def test_two_equal_servers_have_no_winner(servers: dict[str, str]) -> None:
    outcomes = []
    for _ in range(EQUAL_PAIRS):
        values = checked(servers["full"], "--against", servers["full again"])[1]
        print(values["outcome"], values["reason"], values["effect"])
        outcomes.append(values["outcome"])
    assert set(outcomes) <= {"NO_WINNER", "NOT_CALIBRATED"} and (not STRICT or "NO_WINNER" in outcomes)


def test_a_server_that_answers_with_one_character_is_no_saving(servers: dict[str, str]) -> None:
    status, values = checked(servers["broken"], "--against", servers["full"])
    assert (status, values["outcome"]) == (13, "OUTPUT_CHANGED")
    assert str(values["reason"]).startswith("outputs are ")


def test_markdown_names_outcome_cost_noise_and_cache(servers: dict[str, str]) -> None:
    done = run("check", servers["full"], "--yes", "--seconds", SECONDS)
    assert done.exit_code in (0, 12)
    assert done.stdout.startswith(("**calibrated**", "**not calibrated**"))
    assert "device-seconds per Mtok" in done.stdout and "cold prefix cache" in done.stdout
    assert "noise hides differences up to" in done.stdout


def test_nothing_is_sent_without_consent_and_other_files_are_refused(servers: dict[str, str], tmp_path: Path) -> None:
    assert run("check", servers["full"]).exit_code == 2
    file = tmp_path / "other.json"
    file.write_text('{"measurement": {"format": 1}}')
    refused = run("check", servers["full"], "--yes", "--baseline", str(file))
    assert refused.exit_code == 2 and "is no measurement" in refused.stderr
    both = run("check", servers["full"], "--yes", "--baseline", str(file), "--against", servers["full again"])
    assert both.exit_code == 2 and "exclude each other" in both.stderr
