"""A probe of a real llama.cpp server: what it measures, and when it refuses or stops."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from pertoken.access import Access
from pertoken.agent import load_probe as probing
from pertoken.agent.engines.reader import detect
from pertoken.agent.load_probe import Client, Completion, ProbeError, ProbeStep, ServerWatch, run
from pertoken.agent.scrape import RequestLimits
from tests.llama import ALIAS, LlamaServer, write_model

STEPS = (
    ProbeStep(40, 1, 1, 2),
    ProbeStep(300, 1, 1, 2),
    ProbeStep(20, 96, 1, 1),
    ProbeStep(20, 96, 4, 2),
    ProbeStep(200, 96, 4, 1),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    with LlamaServer(write_model(tmp_path_factory.mktemp("probe") / "model.gguf")) as running:
        yield running


def client_of(server: LlamaServer, seed: int = 0) -> Client:
    return Client(server.url, ALIAS, Access(server.url), seed)


def watch_of(server: LlamaServer, sleep: Callable[[float], None] = time.sleep) -> ServerWatch:
    return ServerWatch(detect(server.url, RequestLimits()), RequestLimits(), sleep=sleep)


def test_each_step_is_a_point_and_every_token_the_server_counts_is_the_probes(server: LlamaServer) -> None:
    before = server.counted()
    result = run(client_of(server), watch_of(server), STEPS, 60)
    assert result.stopped is None and result.notes == []
    assert [round(point.running) for point in result.points] == [1, 1, 1, 4, 4]
    alone, batches = result.points[:2], result.points[2:]
    assert all(point.ttft_s and point.token_s is None and point.probed for point in alone)
    assert all(batch.token_s and batch.ttft_s is None and batch.generated_len == 96 for batch in batches)
    for point, step in zip(result.points, STEPS, strict=True):
        assert point.prompt_len == pytest.approx(step.prompt_tokens, rel=0.2)
    after = server.counted()
    assert after["generated_tokens"] - before["generated_tokens"] == result.sent.generated_tokens
    assert after["prompt_tokens"] - before["prompt_tokens"] == result.sent.prompt_tokens


def test_salted_prompts_are_never_answered_from_a_prefix_cache(server: LlamaServer) -> None:
    computed = server.counted()["computed_tokens"]
    result = run(client_of(server, seed=1), None, [ProbeStep(300, 1, 1, 3)], 60)
    fresh = server.counted()["computed_tokens"] - computed
    assert fresh > 0.9 * result.sent.prompt_tokens


def test_a_foreign_request_ends_the_probe_within_one_wave_and_what_it_spoiled_is_dropped(
    server: LlamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waves = []
    wave = probing.wave_of

    def disturbed(client: Client, step: ProbeStep) -> object:
        waves.append(step)
        if len(waves) == 2:
            server.complete([5, 6, 7, 8] * 5, 12)
        return wave(client, step)

    monkeypatch.setattr(probing, "wave_of", disturbed)
    result = run(client_of(server, seed=2), watch_of(server), [ProbeStep(40, 1, 1, 1), *STEPS], 60)
    assert result.stopped is not None and "somebody else" in result.stopped
    assert len(waves) == 2 and len(result.points) == 1


def test_a_server_in_use_is_refused_and_an_idle_one_only_after_its_time(server: LlamaServer) -> None:
    watch = watch_of(server)
    begun = time.monotonic()
    watch.wait_idle(0.3)
    assert time.monotonic() - begun >= 0.3

    def others_come(_: float) -> None:
        server.complete([9] * 30, 4)

    with pytest.raises(ProbeError, match="drain it"):
        watch_of(server, others_come).wait_idle(0.3)


def test_an_interrupt_ends_the_requests_and_keeps_the_measured_points(
    server: LlamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, wave, seen = client_of(server, seed=3), probing.wave_of, []

    def interrupted(client: Client, step: ProbeStep) -> object:
        seen.append(step)
        if len(seen) == 3:
            timer = threading.Timer(0.05, client.stop)
            timer.start()
            try:
                wave(client, ProbeStep(20, 1500, 4, 1))
            except ProbeError:
                raise KeyboardInterrupt from None
            finally:
                timer.join()
        return wave(client, step)

    monkeypatch.setattr(probing, "wave_of", interrupted)
    once = [replace(step, waves=1) for step in STEPS]
    result = run(client, None, once, 60)
    assert result.stopped == "interrupted" and len(result.points) == 2
    deadline = time.monotonic() + 20
    while server.counter("requests_processing"):
        assert time.monotonic() < deadline, "requests of an interrupted probe still run"
        time.sleep(0.02)


def test_a_probe_ends_when_its_time_is_over(server: LlamaServer) -> None:
    ticks = iter(range(1000))
    result = run(
        client_of(server, seed=4),
        None,
        [ProbeStep(40, 1, 1, 50), ProbeStep(41, 1, 1, 50), ProbeStep(900, 1, 1, 1)],
        3,
        clock=lambda: next(ticks),
    )
    assert any("time was over" in note for note in result.notes)
    assert 1 <= len(result.points) < 3


def test_short_steps_are_repeated_before_the_longest_is_sent_for_the_first_time(
    server: LlamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, now_s = [], [0.0]

    def served(client: Client, step: ProbeStep) -> list[Completion]:
        sent.append(step.prompt_tokens)
        begun_s = now_s[0]
        now_s[0] += step.prompt_tokens
        return [Completion(begun_s, (now_s[0],), step.prompt_tokens, 0, 1)]

    monkeypatch.setattr(probing, "wave_of", served)
    steps = [ProbeStep(20, 1, 1, 4), ProbeStep(30, 1, 1, 1), ProbeStep(100, 1, 1, 1), ProbeStep(500, 1, 1, 1)]
    result = run(client_of(server, seed=6), None, steps, 400, clock=lambda: now_s[0])
    assert sent == [20, 30, 20, 20, 20, 100]
    assert [point.ttft_s for point in result.points] == [20, 30, 100]
    assert any("prompt of 500 tokens" in note for note in result.notes)


def test_a_wave_that_would_not_end_in_time_is_not_sent(server: LlamaServer) -> None:
    client = client_of(server, seed=5)
    alone = run(client, None, [ProbeStep(400, 1, 1, 1)], 60)
    ttft_s = alone.points[0].ttft_s
    assert ttft_s is not None
    too_long = ProbeStep(round(400 * 60 / ttft_s), 1, 1, 1)  # 60 s at the pace of the first step, whatever that is
    begun = time.monotonic()
    result = run(client, None, [ProbeStep(400, 1, 1, 1), too_long, ProbeStep(20, 8, 1, 1)], 20)
    assert time.monotonic() - begun < 20
    assert [point.prompt_len > 300 for point in result.points] == [True, False]
    (note,) = result.notes
    assert "time was over" in note and "prompt of" in note and "batch" not in note


def test_a_server_that_does_not_answer_is_one_clear_error(server: LlamaServer) -> None:
    gone = Client("http://127.0.0.1:9", "none", Access("http://127.0.0.1:9"), 0)
    with pytest.raises(ProbeError, match=r"http://127\.0\.0\.1:9/v1/completions"):
        run(gone, None, STEPS, 5)
