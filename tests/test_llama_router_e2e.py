"""A real llama-server in router mode: tokens of each model that it starts are those that its clients received.

`PERTOKEN_LLAMA_SERVER` names its program and runs it; the program of any release with `--models-dir` will do.
"""

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import psutil
import pytest
from sqlalchemy import func, select

from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from tests.llama import Usage, free_port, write_model
from tests.recorded import agent, until

PROGRAM = os.environ.get("PERTOKEN_LLAMA_SERVER")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="PERTOKEN_LLAMA_SERVER=PROGRAM runs it")
START_S = 120.0
MODELS = ("first-of-router", "second-of-router")


@contextmanager
def router(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """URL and process of a router with two models, ended with all that it started."""
    folder.mkdir()
    for seed, name in enumerate(MODELS):
        write_model(folder / f"{name}.gguf", seed, answers="a")  # it refuses to return bytes that are no text
    port, log = free_port(), folder.with_suffix(".log")
    options = (
        "--models-dir",
        str(folder),
        "--port",
        str(port),
        "--metrics",
        "--offline",
        "-c",
        "4096",
        "-np",
        "2",
        "-t",
        "1",
    )
    assert PROGRAM
    with log.open("wb") as output:
        process = subprocess.Popen([PROGRAM, *options], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        until(lambda: process.poll() is not None or _answers(port), "the router", START_S)
        assert process.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
    finally:
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        for child in children:
            child.kill()
        psutil.wait_procs(children, timeout=30)
        process.wait()


def _answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def complete(url: str, model: str, prompt: list[int], generated: int) -> Usage:
    """Return the tokens of one request, as its client received them."""
    body = {"model": model, "prompt": prompt, "n_predict": generated, "ignore_eos": True, "temperature": 0}
    headers = {"Content-Type": "application/json", "Connection": "close"}
    with urlopen(Request(f"{url}/completion", json.dumps(body).encode(), headers), timeout=START_S) as reply:
        answer = json.load(reply)
    return Usage(answer["timings"]["cache_n"] + answer["timings"]["prompt_n"], answer["tokens_predicted"])


def recorded(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the prompt and generated tokens in the database by model; other servers may run on this host."""
    sample, deployment = t.deployment_sample.c, t.deployment.c
    query = (
        select(deployment.served_model, func.sum(sample.prompt_tokens), func.sum(sample.generated_tokens))
        .select_from(t.deployment_sample)
        .join(t.epoch, t.epoch.c.epoch_id == sample.epoch_id)
        .join(t.deployment, deployment.deployment_id == t.epoch.c.deployment_id)
        .where(deployment.served_model.in_(MODELS))
        .group_by(deployment.served_model)
    )
    with open_store(locate(str(folder))).read() as connection:
        return {name: (int(prompt or 0), int(generated or 0)) for name, prompt, generated in connection.execute(query)}


class Served:
    """What clients received, by model."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prompt: Counter[str] = Counter()
        self.generated: Counter[str] = Counter()

    def ask(self, model: str, number: int) -> None:
        usage = complete(self.url, model, [10 + (number * 7 + n) % 200 for n in range(40 + number)], 10 + number)
        self.prompt[model] += usage.prompt_tokens
        self.generated[model] += usage.generated_tokens

    def totals(self) -> dict[str, tuple[int, int]]:
        return {model: (self.prompt[model], self.generated[model]) for model in MODELS}


def test_servers_of_a_router_count_what_clients_received_while_the_agent_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    with router(tmp_path / "models") as (url, process):
        served = Served(url)
        with agent(folder) as first:
            for number in range(6):
                served.ask(MODELS[number % 2], number)
            until(lambda: recorded(folder) == served.totals(), f"{served.totals()}", START_S)
            assert len({child.pid for child in process.children()}) == len(MODELS)
            first.send_signal(signal.SIGKILL)
            first.wait()
        for number in range(6, 10):
            served.ask(MODELS[number % 2], number)
        with agent(folder):
            until(lambda: recorded(folder) == served.totals(), f"{served.totals()}", START_S)
    print(f"served and recorded {served.totals()}")


def test_a_server_of_a_router_that_is_killed_counts_on_in_its_next_life(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    with router(tmp_path / "models") as (url, process), agent(folder):
        served = Served(url)
        served.ask(MODELS[0], 1)
        until(lambda: recorded(folder).get(MODELS[0]) == served.totals()[MODELS[0]], "the first life", START_S)
        (child,) = process.children()
        child.kill()
        child.wait()
        until(lambda: not process.children(), "the router to see that it ended", START_S)
        served.ask(MODELS[0], 2)
        until(lambda: recorded(folder).get(MODELS[0]) == served.totals()[MODELS[0]], "the second life", START_S)
    print(f"served and recorded {served.totals()[MODELS[0]]} over two lives")
