"""Real servers behind a proxy, as on another host: the database equals the counts of their last pages."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.llama import LlamaServer, write_model
from tests.load import Load
from tests.recorded import agent_reading, incomplete, totals, until
from tests.recording_proxy import RecordingProxy, counted, recording_proxy

PROMPT = list(range(20, 60))
NAMES = {
    "computed_tokens": "llamacpp:prompt_tokens_total",
    "cached_tokens": "llamacpp:prompt_tokens_cached_total",
    "generated_tokens": "llamacpp:tokens_predicted_total",
}

SETTINGS = {"PERTOKEN_AGENT_DISCOVER": "false", "PERTOKEN_AGENT_SCRAPE_TIMEOUT": "30s"}
"""Long enough that the agent reads every page that the proxy forwards."""


def expected(proxy: RecordingProxy, names: Mapping[str, str]) -> dict[str, int]:
    """Return the summed counts of the last page of each life, less those before the first reading."""
    lives = proxy.lives
    return {
        word: sum(counted(last, name) for _, last in lives) - counted(lives[0][0], name) for word, name in names.items()
    }


def counted_of(folder: Path, proxy: RecordingProxy) -> dict[str, int]:
    """Return the stored tokens of the counters that the pages have."""
    return {word: n for word, n in totals(folder, proxy).items() if word in NAMES}


def wait_for_last_page(server: LlamaServer, proxy: RecordingProxy, folder: Path) -> None:
    """Wait until the agent has read the last page of an idle server and stored its counts."""
    end = server.counted()["generated_tokens"]
    until(lambda: counted(proxy.pages[-1][1], NAMES["generated_tokens"]) == end, "the last page to be asked for")
    with suppress(AssertionError):
        until(lambda: counted_of(folder, proxy) == expected(proxy, NAMES), "the last page to be stored")
    assert counted_of(folder, proxy) == expected(proxy, NAMES), folder.with_suffix(".log").read_text()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


def test_lives_of_a_server_elsewhere_add_up_to_its_last_pages_even_where_no_counter_fell(
    model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "db"
    with LlamaServer(model) as server, recording_proxy(server.url) as proxy:
        server.complete(PROMPT, generated=3)  # before anybody looked
        with agent_reading(proxy, folder, "--engine", proxy.url, **SETTINGS):
            with Load(lambda n: server.complete([*PROMPT, 60 + n % 100], generated=20)):
                until(lambda: totals(folder, proxy)["generated_tokens"] > 100, "a life under load")
            # The agent also asks for pages that it does not count, to see what answers there. Once no counter moves,
            # every page of this life shows the same, and which of them it counted last does not matter.
            wait_for_last_page(server, proxy, folder)
            done = server.counted()["generated_tokens"]
            server.kill()
            server.start()
            # More tokens than before the restart: only its process start shows that it is another process.
            while server.counted()["generated_tokens"] <= 2 * done:
                server.complete([*PROMPT, 90], generated=100)
            until(lambda: len(proxy.lives) == 2, "the agent to have asked the second life")
            wait_for_last_page(server, proxy, folder)
    assert counted_of(folder, proxy) == expected(proxy, NAMES)
    assert incomplete(folder, proxy) >= 1
