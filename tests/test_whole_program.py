"""The whole program over a real llama.cpp server: what a client was served is what the database holds."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from sqlalchemy import func, select

from pertoken.agent.engines.reader import EngineReader, detect
from pertoken.agent.scrape import RequestLimits
from pertoken.catalog.knobs import read_argv
from pertoken.cli import main
from pertoken.store.connect.location import AgentLock, locate
from pertoken.store.schema import telemetry as t
from tests.agent.engine_pages import read_one
from tests.llama import CONTEXT, LlamaServer, write_model
from tests.load import Load
from tests.recorded import (
    DEADLINE_S,
    agent,
    agent_reading,
    epochs,
    incomplete,
    kinds,
    last_page,
    newest,
    plus,
    rows_of,
    scalar,
    totals,
    until,
)
from tests.scenario import LOW_BATCH_70B, seed

PROMPT = list(range(20, 60))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def server(model: Path) -> Iterator[LlamaServer]:
    with LlamaServer(model) as server:
        yield server


def deployment_of(folder: Path, server: LlamaServer) -> int:
    return int(scalar(folder, rows_of(server, t.deployment.c.deployment_id)))


def advise(folder: Path) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["advise", "--db", str(folder), "--since", "1h", "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_served_tokens_equal_stored_tokens_and_their_dollars_add_up(server: LlamaServer, tmp_path: Path) -> None:
    folder = tmp_path / "db"
    with agent_reading(server, folder):
        usages = [server.complete([*PROMPT, 70 + n], generated=5 + n) for n in range(6)]
        server.abort([*PROMPT, 99])
        until(lambda: server.counter("requests_processing") == 0, "the aborted request to end")
        done = server.counted()
        until(lambda: totals(folder, server) == done, f"the agent to have seen {done}")
    counted = totals(folder, server)
    assert counted == done
    answered = sum(usage.generated_tokens for usage in usages)
    aborted = counted["generated_tokens"] - answered
    assert counted["prompt_tokens"] == sum(usage.prompt_tokens for usage in usages) + len(PROMPT) + 1
    assert aborted >= 1
    assert counted["prompt_tokens"] == counted["cached_tokens"] + counted["computed_tokens"]
    assert incomplete(folder, server) == 0

    done_price = CliRunner().invoke(main, ["prices", "set", "3.60", "--for", "cpu", "--db", str(folder)])
    assert "It applies to 1 x" in done_price.output
    fleet = advise(folder)["fleet"]
    (line,) = [
        deployment
        for deployment in fleet["deployments"]
        if deployment["deployment_id"] == deployment_of(folder, server)
    ]
    held = t.device_share.c.duration_ms * t.device_share.c.share_1e6
    ours = rows_of(server, t.deployment_sample.c.epoch_id)
    shared = scalar(folder, select(func.sum(held)).where(t.device_share.c.epoch_id.in_(ours))) or 0
    served = t.deployment_sample.c
    alone = select(func.sum(served.duration_ms)).where(served.epoch_id.in_(ours), served.whole_provenance.is_not(None))
    seconds = shared / 1e9 + (scalar(folder, alone) or 0) / 1e3
    tokens = counted["prompt_tokens"] + counted["generated_tokens"]
    assert line["model"] == "tiny-llama"
    assert line["nano_usd"] == pytest.approx(seconds * 3.60 / 3600 * 1e9, rel=1e-6, abs=2)
    assert line["nano_usd_per_mtok"] == pytest.approx(line["nano_usd"] / tokens * 1e6, rel=1e-6)
    bill = fleet["bill"]
    assert bill["paid"] == bill["busy"] + bill["idle"] + bill["other"] + bill["unallocated"]
    assert fleet["power_w"] is None or fleet["power_w"] > 0


def test_requests_that_queue_behind_one_slot_on_cpus_get_slots_by_commands_that_a_server_starts_with(
    model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "db"
    with LlamaServer(model, slots=1) as crowded:
        named = agent(folder, "--engine", crowded.url, PERTOKEN_AGENT_DISCOVER="false")
        with Load(lambda n: crowded.complete([*PROMPT, 60 + n % 100], generated=150), clients=4), named:
            until(lambda: scalar(folder, rows_of(crowded, func.count())) >= 4, "some ticks under load")
        rows = advise(folder)["recommendations"]
    by_rule = {row["rule_id"]: row for row in rows if row["target"] == "tiny-llama"}
    slots, weights = by_rule["continuous-batching"], by_rule["quantize-weights"]
    assert (slots["state"], weights["state"]) == ("OPEN", "OPEN"), (slots["reason"], weights["reason"])
    variant = slots["variants"][0]
    assert variant["title"] == "batch limit 1 → 8"
    assert (
        "runs on a device the catalog does not know, such as CPUs: measure it with `pertoken probe`"
        in variant["unpriced"]
    )
    assert variant["undo"] == ["set --parallel 1", f"set --ctx-size {CONTEXT}"]

    flags = [word for line in variant["commands"] for word in line.removeprefix("set ").split()]
    knobs = read_argv("llama.cpp", ("llama-server", *flags))
    assert knobs == {"max_num_seqs": 8, "max_model_len": CONTEXT}
    whole = int(flags[flags.index("--ctx-size") + 1])
    with LlamaServer(model, slots=int(flags[flags.index("--parallel") + 1]), context=whole) as roomy:
        seen = read_one(EngineReader(detect(roomy.url, RequestLimits(timeout_s=10)), RequestLimits(timeout_s=10)))
        assert {name: seen.knobs[name] for name in knobs} == knobs
        with Load(lambda n: roomy.complete([*PROMPT, 60 + n % 100], generated=150), clients=4):
            until(lambda: roomy.counter("requests_processing") >= 3, "requests to run side by side")
            assert roomy.counter("requests_deferred") == 0


def test_an_engine_restarted_under_the_agent_keeps_both_lives_and_marks_the_unseen_part(
    server: LlamaServer, tmp_path: Path
) -> None:
    folder = tmp_path / "db"
    with agent_reading(server, folder):
        server.complete(PROMPT, generated=9)
        first = server.counted()
        until(lambda: totals(folder, server) == first, "the first life's last page")
        server.restart()
        server.complete(PROMPT[:7], generated=4)
        second = server.counted()
        until(lambda: totals(folder, server) == plus(first, second), "the second life's page")
    assert totals(folder, server) == plus(first, second)
    assert incomplete(folder, server) >= 1
    assert epochs(folder, server) == 1
    assert "engine_restarted" in kinds(folder)


def _stored_more(folder: Path, server: LlamaServer, tokens: int) -> bool:
    return totals(folder, server)["generated_tokens"] > tokens


def _served_more(server: LlamaServer, tokens: int) -> bool:
    return server.counted()["generated_tokens"] > tokens


def test_an_agent_ended_or_killed_under_load_loses_and_doubles_nothing(server: LlamaServer, tmp_path: Path) -> None:
    folder = tmp_path / "db"
    with agent_reading(server, folder):
        assert not any(server.counted().values())  # watched from the first token on
    with Load(lambda n: server.complete([*PROMPT, 60 + n % 100], generated=20), pause_s=0.03):
        for ending in (signal.SIGTERM, signal.SIGKILL):
            with agent_reading(server, folder) as process:
                enough = totals(folder, server)["generated_tokens"] + 200
                until(partial(_stored_more, folder, server, enough), "an agent under load")
                process.send_signal(ending)
                process.wait(DEADLINE_S)
            enough = server.counted()["generated_tokens"] + 200
            until(partial(_served_more, server, enough), "work while no agent looks")
    with agent_reading(server, folder):
        everything = server.counted()
        until(lambda: last_page(folder, server) == everything, "the last page")
    assert incomplete(folder, server) == 0
    assert totals(folder, server) == everything


def test_an_engine_killed_and_restarted_under_load_is_counted_by_the_last_page_of_each_life(
    server: LlamaServer, tmp_path: Path
) -> None:
    folder = tmp_path / "db"
    with agent_reading(server, folder):
        with Load(lambda n: server.complete([*PROMPT, 60 + n % 100], generated=20), pause_s=0.03) as load:
            until(lambda: totals(folder, server)["generated_tokens"] > 500, "a life under load")
            seen, early = newest(folder), server.counted()
            until(lambda: newest(folder) > seen + 1, "a page after that one")
            server.kill()
            until(lambda: incomplete(folder, server), "the agent to see that it stopped")
            first = last_page(folder, server)
            assert totals(folder, server) == first
            assert all(first[word] >= early[word] for word in first)
            server.start()
            before = load.served
            until(lambda: load.served > before + 20, "a second life under load")
        second = server.counted()
        until(lambda: last_page(folder, server) == second, "the second life's last page")
    assert totals(folder, server) == plus(first, second)
    assert epochs(folder, server) == 1


def test_a_server_named_by_url_is_read_even_if_it_starts_after_the_agent(model: Path, tmp_path: Path) -> None:
    from tests.llama import free_port

    folder, port = tmp_path / "db", free_port()
    named = agent(folder, "--engine", f"http://127.0.0.1:{port}", PERTOKEN_AGENT_DISCOVER="false")
    with named, LlamaServer(model, port=port) as server:
        server.complete(PROMPT, generated=5)
        done = server.counted()
        until(lambda: totals(folder, server) == done, "the engine to be found and read")


def test_the_screens_show_the_recorded_figures(server: LlamaServer, tmp_path: Path) -> None:
    import asyncio

    from pertoken.tui.app import PertokenApp
    from pertoken.tui.store_source import StoreSource

    folder = tmp_path / "db"
    with agent_reading(server, folder):
        server.complete(PROMPT, generated=9)
        done = server.counted()
        until(lambda: totals(folder, server) == done, "a tick")

    async def look() -> str:
        app = PertokenApp(StoreSource(locate(str(folder))))
        async with app.run_test(size=(120, 40)) as pilot:
            for _ in range(400):
                await pilot.pause(0.05)
                text = "\n".join(str(line.text) for line in app.screen._compositor.render_strips())
                if "tiny-llama" in text:
                    return text
        return text

    shown = asyncio.run(look())
    assert "tiny-llama" in shown
    assert "llama.cpp" in shown


def test_the_screens_are_served_to_a_browser_of_this_host(tmp_path: Path) -> None:
    from tests.llama import free_port

    seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=1.0, minutes=2, end_ts=int(time.time()) // 60 * 60)
    port = free_port()
    web = subprocess.Popen(
        [sys.executable, "-m", "pertoken", "top", "--db", str(tmp_path), "--web", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def page() -> str:
        try:
            with urlopen(f"http://127.0.0.1:{port}/", timeout=5) as reply:
                return str(reply.read().decode())
        except OSError:
            return ""

    try:
        until(lambda: "textual.js" in page(), "the page")
    finally:
        web.send_signal(signal.SIGINT)
        web.wait(DEADLINE_S)


def test_a_host_without_an_engine_is_shown_with_advice_on_how_to_start_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pertoken", "up", "--db", str(tmp_path / "db"), "--interval", "1s"],
        capture_output=True,
        text=True,
        timeout=90,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PERTOKEN_AGENT_DISCOVER": "false"},
        check=True,
    )
    assert "No inference server was found on this host" in done.stdout
    assert "Hosts" in done.stdout
    assert "$/Mtok: no price" in done.stdout


def test_up_without_a_terminal_prints_a_summary_and_leaves_nothing_running(server: LlamaServer, tmp_path: Path) -> None:
    server.complete(PROMPT, generated=5)
    done = subprocess.run(
        [sys.executable, "-m", "pertoken", "up", "--db", str(tmp_path / "db"), "--interval", "1s"],
        capture_output=True,
        text=True,
        timeout=90,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    assert "No terminal" in done.stdout
    assert "tiny-llama" in done.stdout
    assert "pertoken prices set" in done.stdout
    assert AgentLock(tmp_path / "db").owner() is None


def test_the_agent_that_up_started_ends_even_if_up_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    up = subprocess.Popen(
        [sys.executable, "-m", "pertoken", "up", "--db", str(folder), "--interval", "1s"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: AgentLock(folder).owner(), "the agent to start")
        pid = AgentLock(folder).owner()
        assert pid is not None and pid != up.pid
    finally:
        up.kill()
        up.wait()
    until(lambda: AgentLock(folder).owner() is None, "the agent to end")
    until(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid), "its process to be gone")


def _is_zombie(pid: int) -> bool:
    return " Z " in Path(f"/proc/{pid}/stat").read_text()


def test_a_running_agent_is_shown_and_not_doubled(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    with agent(folder) as process:
        done = subprocess.run(
            [sys.executable, "-m", "pertoken", "up", "--db", str(folder)],
            capture_output=True,
            text=True,
            timeout=90,
            stdin=subprocess.DEVNULL,
            check=True,
        )
        assert f"An agent (pid {process.pid}) already records" in done.stderr
        assert AgentLock(folder).owner() == process.pid
        second = subprocess.run(
            [sys.executable, "-m", "pertoken", "agent", "--db", str(folder)], capture_output=True, text=True, timeout=60
        )
        assert (second.returncode, second.stderr.count("\n")) == (1, 1)
        assert f"an agent (pid {process.pid}) already writes" in second.stderr


def test_settings_are_reread_at_sighup_and_wrong_ones_are_reported_and_not_applied(tmp_path: Path) -> None:
    file = tmp_path / "pertoken.toml"
    file.write_text("[agent]\ndiscover = false\n")
    folder = tmp_path / "db"
    log = folder.with_suffix(".log")
    with agent(folder, "--config", str(file)) as process:
        file.write_text("[agent]\ndiscover = 3\n")
        process.send_signal(signal.SIGHUP)
        until(lambda: "settings not taken" in log.read_text(), "the mistake to be logged")
        file.write_text("[agent]\ndiscover = true\n")
        process.send_signal(signal.SIGHUP)
        until(lambda: "settings reread" in log.read_text(), "the settings to be taken")
        before = newest(folder)
        until(lambda: newest(folder) > before, "a tick after it")


def test_measuring_once_prints_and_stores_nothing(server: LlamaServer, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "pertoken", "agent", "--once", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=True,
    )
    report = json.loads(done.stdout)
    served = {engine["endpoint"]["port"]: engine["served_model"] for engine in report["engines"]}
    assert served[server.port] == "tiny-llama"
    assert report["samples"]["HostSample"][0]["memory_used_bytes"] > 0
    assert list(tmp_path.iterdir()) == []
