"""`pertoken check`: whether a live server got cheaper or dearer, for people and for CI."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import Progress, config_option, echo, json_option, settings_of
from pertoken.cli.probe import (
    INTERRUPTED,
    STOPPED,
    access_to,
    base_url,
    consent,
    listed_model,
    positive,
    wait_idle,
    watched,
)
from pertoken.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pertoken.agent.load_probe import Client, ProbeStep, ServerUnderCheck
    from pertoken.config import Settings
    from pertoken.proof.trials.endpoint import CheckResult, Measurement, PromptOutput


@click.command(short_help="Compare a live server with another one or an earlier run.")
@click.argument("endpoint", metavar="URL")
@click.option("--against", metavar="URL", help="Another live server to compare with, block by block.")
@click.option(
    "--baseline",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="JSON of an earlier check to compare with.",
)
@click.option(
    "--save", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the JSON to this file, too."
)
@click.option(
    "--seconds", type=click.FloatRange(1, 1800), default=60.0, show_default=True, help="Time to measure, about."
)
@click.option(
    "--between-starts",
    type=click.FloatRange(0, 0.5),
    default=0.03,
    show_default=True,
    help="Scatter of speed between two starts of a server, as a fraction; 0 if both runs are of one start.",
)
@click.option("--yes", is_flag=True, help="Do not ask before sending requests.")
@click.option("--exclusive", is_flag=True, help="The server has no other client: measure without its metrics page.")
@click.option("--model", metavar="NAME", help="Model to ask for [default: the first that the server lists].")
@json_option
@config_option
def check(
    endpoint: str,
    against: str | None,
    baseline: Path | None,
    save: Path | None,
    seconds: float,
    between_starts: float,
    yes: bool,
    exclusive: bool,
    model: str | None,
    as_json: bool,
    config_file: str | None,
) -> None:
    """Measure an idle server in blocks of equal work, and compare the cost of a token and the outputs.

    Compare with a second live server (--against) in turn, or with the file of an earlier check (--baseline). Without
    either the server is measured alone; --save writes the file for a later --baseline. Prompts are random, so that no
    prefix cache has them; 16 fixed prompts are answered greedily to compare outputs. Output is Markdown, or JSON.

    Exit 0: cheaper, or measured alone. 10: no winner. 11: dearer. 12: not calibrated: noise hides any difference.
    13: output changed. 3: somebody else used the server. 130: Ctrl-C.
    """
    from pertoken.agent.load_probe import Foreign
    from pertoken.proof.trials.endpoint import EXIT_STATUS, to_markdown
    from pertoken.proof.trials.endpoint import check as compare

    if against is not None and baseline is not None:
        raise BadInput("--against and --baseline exclude each other: compare with one of them")
    earlier = None if baseline is None else _read(baseline)
    settings = settings_of(config_file)
    urls = [base_url(url) for url in (endpoint, against) if url is not None]
    servers, names, step = _servers(urls, settings, exclusive, model)
    echo(f"Check {' against '.join(names)}: {seconds:g} s of requests to each idle server, 32 fixed prompts.", err=True)
    consent(yes)
    try:
        with Progress("Checking") as progress:
            for server in servers:
                wait_idle(server.watch, progress)
            measured = _measured(servers, names, step, seconds, progress)
    except Foreign as used:
        echo(f"Stopped: somebody else uses the server: {used}", err=True)
        sys.exit(STOPPED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    candidate, baseline_measurement = measured[0], measured[1] if len(measured) > 1 else earlier
    result = compare(candidate, baseline_measurement, between_starts)
    text = json.dumps(_plain(candidate, baseline_measurement, result), indent=2)
    if save is not None:
        save.write_text(text + "\n")
    echo(text if as_json else to_markdown(candidate, baseline_measurement, result).rstrip())
    sys.exit(EXIT_STATUS[result.outcome])


def _read(path: Path) -> Measurement:
    from pertoken.proof.trials.endpoint import from_values

    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read as JSON: {error}") from None
    return from_values(values.get("measurement") if isinstance(values, dict) else None, str(path))


def _servers(
    urls: Sequence[str], settings: Settings, exclusive: bool, model: str | None
) -> tuple[list[ServerUnderCheck], list[str], ProbeStep]:
    """Return the servers with their names, and the work of a wave that each of them can do."""
    import secrets

    from pertoken.agent.load_probe import Client, ServerUnderCheck, step_of

    servers, names, steps = [], [], []
    for url in urls:
        watch, reading = watched(url, settings, exclusive)
        name = model or (reading.served_model if reading else None) or listed_model(url, settings)
        knobs = reading.knobs if reading else {}
        steps.append(step_of(positive(knobs.get("max_num_seqs")), positive(knobs.get("max_model_len"))))
        servers.append(ServerUnderCheck(Client(url, name, access_to(url, settings), secrets.randbits(64)), watch))
        names.append(f"{name} at {url}")
    return servers, names, min(steps, key=lambda step: step.tokens)


def _measured(
    servers: Sequence[ServerUnderCheck], names: Sequence[str], step: ProbeStep, seconds: float, progress: Progress
) -> list[Measurement]:
    from pertoken.agent.load_probe import measure
    from pertoken.proof.trials.endpoint import BlockCost, Measurement

    progress.phase("Asking fixed prompts")
    answers_by_server = [(answers_of(server.client), answers_of(server.client)) for server in servers]
    blocks = measure(servers, step, seconds, lambda done, total: progress.phase(f"Block {done + 1} of {total}"))
    work = f"waves of {step.batch} requests with {step.prompt_tokens} prompt and {step.generated_tokens} output tokens"
    costs: list[list[BlockCost]] = [[] for _ in servers]
    for block in blocks:
        counts = block.prompt_tokens, block.cached_tokens, block.generated_tokens
        costs[block.server].append(BlockCost(block.wave_s, block.started_s, *counts))
    return [
        Measurement(name, work, tuple(server_costs), *answers)
        for name, server_costs, answers in zip(names, costs, answers_by_server, strict=True)
    ]


def answers_of(client: Client) -> tuple[PromptOutput, ...]:
    """Return a server's greedy answers to the fixed prompts. Raises ProbeError."""
    from pertoken.proof.trials.endpoint import ANSWER_TOKENS, PROMPTS, PromptOutput

    completions = (client.complete(prompt, ANSWER_TOKENS, may_end=True) for prompt in PROMPTS)
    return tuple(PromptOutput(completion.text, completion.generated_tokens) for completion in completions)


def _plain(candidate: Measurement, baseline: Measurement | None, result: CheckResult) -> dict[str, object]:
    from pertoken.proof.trials.endpoint import EXIT_STATUS, to_values

    effect = result.effect
    return {
        "outcome": result.outcome.value,
        "exit_status": EXIT_STATUS[result.outcome],
        "reason": result.reason,
        "effect": None if effect is None else dict(zip(("low", "likely", "high"), effect, strict=True)),
        "noise": result.noise,
        "outputs": None if result.answers is None else {**asdict(result.answers), "changed": result.answers.name},
        "s_per_mtok": candidate.s_per_mtok,
        "cached_share": candidate.cached_share,
        "baseline": None if baseline is None else {"name": baseline.name, "s_per_mtok": baseline.s_per_mtok},
        "measurement": to_values(candidate),
    }
