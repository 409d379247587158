"""The parts of `benchmarks.site`: what it draws, measures and scores. Nothing is timed."""

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.site.__main__ import Site, main
from benchmarks.site.closed_loop import Measured, Prediction, figures, lengths
from benchmarks.site.configurations import SLOTS, Configuration, control, draw
from benchmarks.site.engines.llama_cpp import LLAMA_CPP
from benchmarks.site.engines.server import ALIAS, Command, Server, ServerSettings
from benchmarks.site.engines.vllm import VLLM
from benchmarks.site.hardware import medians
from benchmarks.site.machine import Machine
from benchmarks.site.models import FORMATS, SHAPES, SMALL, write
from benchmarks.site.plan import ROUNDS, Plan, requests_each
from benchmarks.site.play import TURN_S, Steps, play
from benchmarks.site.record import OnFile, Recording
from benchmarks.site.scoring import Outcome, score
from benchmarks.site.speed import Speed, speed, speed_rows
from pertoken.access import Access
from pertoken.agent.load_probe.client import Client, Completion
from pertoken.catalog.market import MeasuredRates
from pertoken.evidence import OperatingPoint


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_draws_16_configurations_in_which_each_level_comes_at_least_twice(seed: int) -> None:
    bases, others = draw(SHAPES, seed)
    assert (bases, others) == draw(SHAPES, seed)
    assert len(set(others)) == 16 and not set(others) & set(bases)
    everything = [*bases, *others]
    for name, levels in (
        ("slots", SLOTS),
        ("threads", (1, 2)),
        ("kv_dtype", LLAMA_CPP.kv_dtypes),
        ("weight_dtype", FORMATS),
    ):
        counts = Counter(getattr(item, name) for item in everything)
        assert set(counts) == set(levels) and min(counts.values()) >= 2, (name, counts)
    assert sum(any(other.same_format(base) for base in bases) for other in others) == 8
    for item in everything:
        assert item.clients <= item.slots and 1.3 * (item.prompt + item.generated) < item.context


@pytest.mark.parametrize("seed", range(20))
def test_with_vllm_weights_and_threads_change_but_no_cache_dtype(seed: int) -> None:
    bases, others = draw(VLLM.shapes, seed, VLLM.n, 2, VLLM)
    changed = [other for other in others if not any(other.same_format(base) for base in bases)]
    assert len(others) == VLLM.n and len(changed) == VLLM.n // 2
    assert {item.weight_dtype for item in (*bases, *others)} == set(VLLM.weight_dtypes)
    assert {item.threads for item in (*bases, *others)} == {1, 2} and {item.kv_dtype for item in others} == {"bf16"}
    for item in (*bases, *others):
        assert item.label.startswith("vllm dense-") and item.deployment().engine == "vllm"


@pytest.mark.parametrize(("threads", "cores"), [(1, "3"), (2, "3,5")])
def test_vllm_is_started_with_the_knobs_and_allowed_cores_of_a_configuration(
    threads: int, cores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {5, 3, 6})
    command = VLLM.command(ServerSettings("/models/tiny", 4, 512, threads, "bf16"))
    words = list(command.words)
    knobs = {name: words[words.index(f"--{name}") + 1] for name in ("port", "max-num-seqs", "max-model-len")}
    assert knobs == {"port": "{port}", "max-num-seqs": "4", "max-model-len": "512"}
    assert words[words.index("--max-num-batched-tokens") + 1] == "2048"
    assert command.environment["VLLM_CPU_OMP_THREADS_BIND"] == cores


def test_a_server_that_does_not_start_names_its_command() -> None:
    command = Command((sys.executable, "-c", "raise SystemExit(3)", "{port}"), 30.0)
    with pytest.raises(RuntimeError, match=r"does not start: .*SystemExit"), Server(command):
        pass


def test_a_server_ends_with_the_processes_that_it_started(tmp_path: Path) -> None:
    """A stand-in whose child serves, as vLLM's engine is a process of its own."""
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'http.server', sys.argv[1]])"
    (tmp_path / "health").write_text("")
    command = Command(("env", "-C", str(tmp_path), sys.executable, "-c", parent, "{port}"), 30.0)
    with Server(command) as server:
        pids = server.pids
        assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_processes_of_a_server_that_ended_while_it_started_are_ended_too(tmp_path: Path) -> None:
    child = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    parent = (
        "import subprocess, sys, time, pathlib; subprocess.Popen([sys.executable, '-c', sys.argv[1]])\n"
        f"while not pathlib.Path({str(tmp_path / 'pid')!r}).exists(): time.sleep(0.01)"
    )
    with pytest.raises(RuntimeError), Server(Command((sys.executable, "-c", parent, child, "{port}"), 30.0)):
        pass
    left = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 30
    while psutil.pid_exists(left) and psutil.Process(left).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "a child outlived its server"


@pytest.mark.parametrize("stays", [False, True])
def test_a_machine_probes_and_serves_a_configuration_on_a_real_engine(stays: bool, tmp_path: Path) -> None:
    engine = replace(LLAMA_CPP, stays=stays)
    plan = Plan(1, 60.0, 2.0, 2.0, engine, SMALL, SMALL, 4, 1, False)
    machine = Machine(plan, tmp_path)
    (of, _), _ = draw(SMALL, 1, 4, 1, engine)
    points = machine.probe(of, 5.0)
    assert {point.running for point in points} >= {1.0, 2.0} and all(point.probed for point in points)
    ((served, rounds),) = machine.serve({replace(of, clients=2, prompt=16, generated=8): 1}).items()
    assert served.engine.stays == stays and len(rounds) == ROUNDS and min(one.tok_s for one in rounds) > 0


def test_another_engine_than_llama_cpp_has_no_short_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seed", "1", "--engine", "vllm", "--short"])
    assert "are for llama.cpp" in capsys.readouterr().err


def test_the_models_have_the_sizes_they_are_named_for() -> None:
    total = {shape.name: (shape.model().params_total or 0) / 1e9 for shape in SHAPES}
    assert {name: round(size, 1) for name, size in total.items()} == {
        "dense-0.3b": 0.3,
        "dense-0.6b": 0.6,
        "dense-1.5b": 1.5,
        "moe-0.6b": 0.6,
    }


@pytest.mark.parametrize(("shape", "dtype", "kv"), [(SMALL[1], "int4", "int8")])
def test_a_quantized_model_of_random_weights_is_served(shape: object, dtype: str, kv: str, tmp_path: Path) -> None:
    small = next(small for small in SMALL if small is shape)
    file = write(tmp_path / "model.gguf", small, dtype)
    with Server(LLAMA_CPP.command(ServerSettings(str(file), 2, 128, 1, kv))) as server:
        completion = Client(server.url, ALIAS, Access(server.url), 0).complete("abc def", 8)
    assert completion.generated_tokens == 8 and len(completion.part_s) >= 7


def test_figures_are_of_whole_requests_of_all_clients() -> None:
    def request(sent_s: float) -> Completion:
        return Completion(sent_s, tuple(sent_s + 1 + 0.1 * n for n in range(11)), 50, 0, 11)

    alone = [request(2.0 * n) for n in range(10)]
    for clients in ([alone], [alone, alone[:1]]):
        steady = figures(clients)
        assert steady.ttft_ms == pytest.approx(1000) and steady.tpot_ms == pytest.approx(100)
        assert steady.tok_s == pytest.approx(len(clients) * 11 / 2)


def test_a_client_alone_is_played_as_its_prompt_and_a_step_for_each_further_token() -> None:
    steps = Steps([0.1, 0.15], [(100, 1.0), (200, 2.0)])
    ((first, second),) = play(steps, [[(100, 11), (300, 2)]])
    assert first.ttft_s == pytest.approx(1.0) and first.part_s[-1] == pytest.approx(2.0)
    assert second.sent_s == pytest.approx(2.0 + TURN_S) and second.ttft_s == pytest.approx(3.0)


def test_prompts_that_come_during_a_step_are_computed_together_and_stop_the_decode_of_others() -> None:
    steps = Steps([0.1, 0.2, 0.3], [(100, 1.0), (200, 2.0)])
    (early,), (late,), (later,) = play(steps, [[(100, 3)], [(100, 3)], [(200, 3)]])
    # The first starts alone; the others wait for its prompt, and their prompts stop its first decode step.
    assert early.part_s == pytest.approx((1.0, 1.0 + 0.1 + 3.0, 4.4))
    assert late.part_s == later.part_s == pytest.approx((4.1, 4.4, 4.4 + 0.2))


@given(clients=st.integers(1, 6), requests=st.integers(1, 4), seed=st.integers(0, 99))
def test_every_request_of_a_round_is_played_with_its_lengths(clients: int, requests: int, seed: int) -> None:
    of = replace(draw(SHAPES, seed)[1][0], clients=clients)
    asked = lengths(of, seed, requests)
    assert len(asked) == clients and asked == lengths(of, seed, requests)
    done = play(Steps([0.1] * clients, [(1, 0.01), (1000, 10.0)]), asked)
    assert [[(one.prompt_tokens, len(one.part_s)) for one in of_client] for of_client in done] == asked
    for prompt, generated in (length for of_client in asked for length in of_client):
        assert 0.69 * of.prompt - 1 <= prompt <= 1.31 * of.prompt + 1
        assert 0.69 * of.generated - 1 <= generated <= 1.31 * of.generated + 1


@pytest.mark.parametrize("left_s", [10.0, 300.0, 900.0])
def test_rounds_of_all_configurations_fit_into_the_time_and_have_at_least_one_request(left_s: float) -> None:
    cycles_s = [2.0, 5.0, 20.0]
    counts = requests_each(cycles_s, left_s)
    assert min(counts) >= 1 and counts == sorted(counts, reverse=True)
    total_s = ROUNDS * sum(n * cycle_s for n, cycle_s in zip(counts, cycles_s, strict=True))
    assert total_s <= left_s or counts == [1, 1, 1]


def test_a_run_on_file_gives_the_same_predictions_again(tmp_path: Path) -> None:
    """A machine that computes 1,000 prompt tokens a second, and steps of 20 ms and 5 ms more for each sequence."""
    plan = Plan(3, 60.0, 1.0, 1.0, LLAMA_CPP, SMALL, SMALL, 4, 2, False)
    recording = Recording(Ideal(), tmp_path / "run.json")
    outcomes, hashes = Site(plan, recording).run()
    assert {outcome.kind for outcome in outcomes} == {"control", "load", "format", "format_probed", "rates"}
    again, same = Site(plan, OnFile(tmp_path / "run.json")).run()
    assert again == outcomes and same == hashes


class Ideal:
    """A machine on which steps take the same time whatever the model."""

    repeats: ClassVar[dict[str, int]] = {}
    speeds: ClassVar[dict[str, list[Speed]]] = {"probes": [(1e11, 1e10)], "round 1": [(5e10, 1e10)] * 2}

    def prepare(self, configurations: Sequence[Configuration]) -> None:
        pass

    def rates(self, threads: int) -> dict[str, MeasuredRates]:
        return {dtype: MeasuredRates(2e10, 5e10 * threads) for dtype in FORMATS}

    def probe(self, of: Configuration, seconds: float) -> tuple[OperatingPoint, ...]:
        prompts = [OperatingPoint(0, 1.0, None, n, 1.0, ttft_s=n / 1000, probed=True) for n in (64.0, 256.0)]
        batches = [
            OperatingPoint(0, n, 0.02 + 0.005 * n, 64.0, 24.0, cached_share=1.0, probed=True) for n in (1.0, 2.0, 4.0)
        ]
        return (*prompts, *batches)

    def left_s(self, probes_s: float) -> float:
        return 100.0

    def serve(self, requests: Mapping[Configuration, int]) -> dict[Configuration, list[Measured]]:
        steps = Steps([0.02 + 0.005 * n for n in range(1, 9)], [(10, 0.01), (100, 0.1)])
        return {
            of: [figures(play(steps, lengths(of, number, n))) for number in range(ROUNDS)] for of, n in requests.items()
        }


def test_times_of_the_same_batch_and_prompt_in_several_turns_become_their_median() -> None:
    turns = [(0.1, 1.0), (0.3, 3.0), (0.2, 5.0)]
    points = [
        point
        for token_s, ttft_s in turns
        for point in (
            OperatingPoint(0, 1.0, None, 64.0, 1.0, ttft_s=ttft_s, probed=True),
            OperatingPoint(0, 1.0, token_s, 64.0, 24.0, cached_share=1.0, probed=True),
            OperatingPoint(0, 2.0, 2 * token_s, 64.0, 24.0, cached_share=1.0, probed=True),
        )
    ]
    assert [(point.running, point.token_s, point.ttft_s) for point in medians(points)] == [
        (1.0, None, 3.0),
        (1.0, 0.2, None),
        (2.0, 0.4, None),
    ]


def test_speeds_of_phases_are_reported_over_that_of_the_probes() -> None:
    rows = speed_rows({"probes": [(1e11, 1e10), (3e11, 1e10), (2e11, 1e10)], "round 1": [(1e11, 2e10)]})
    assert {row.what: row.value for row in rows} == {
        "speed of products, probes": 1.0,
        "speed of products, round 1": 0.5,
        "speed of copies, probes": 1.0,
        "speed of copies, round 1": 2.0,
    }
    assert speed_rows({"round 1": [(1e11, 2e10)]}) == [] and min(speed()) > 0


@pytest.mark.parametrize("seed", range(4))
def test_controls_are_the_probed_configurations_with_prompts_that_fit_into_a_round(seed: int) -> None:
    bases, others = draw(SHAPES, seed)
    for probed in bases:
        same = control(probed)
        assert replace(same, prompt=probed.prompt) == probed and 1 <= same.prompt <= probed.prompt
        assert same not in others


def test_errors_coverage_and_width_are_those_of_the_predictions() -> None:
    prediction = Prediction((90, 100, 110), (9, 10, 11), (90, 100, 110))
    rounds = tuple(Measured(100 * factor, 10 * factor, 125 * factor) for factor in (0.98, 1.0, 1.02))
    rows, targets = score([Outcome("tiny", "load", prediction, rounds)], {})
    assert [row.what for row in rows if row.unit == "predicted / measured"] == [
        "tiny: tok_s",
        "tiny: tpot_ms",
        "tiny: ttft_ms",
    ]
    values = {target.id: target.value for target in targets}
    assert values["site.load_median"] == pytest.approx(0.0) and values["site.load_p90"] == pytest.approx(0.16)
    assert values["site.format_median"] is None
    control = Outcome("probed", "control", Prediction((1, 2, 3), (1, 2, 3), (1, 2, 3)), rounds)
    with_control, same = score([Outcome("tiny", "load", prediction, rounds), control], {})
    assert same == targets
    assert {row.what: row.value for row in with_control}["control median"] == pytest.approx(0.98)
    assert values["site.coverage"] == pytest.approx(2 / 3) and values["site.width"] == pytest.approx(1.1)


def test_a_round_is_compared_with_the_median_of_the_others() -> None:
    """It shows how much of an error is the machine of that moment; of two rounds it is not known."""
    prediction = Prediction((90, 100, 110), (9, 10, 11), (90, 100, 110))
    rounds = tuple(Measured(value, 10, 100) for value in (100, 110, 130))
    outcome = Outcome("tiny", "load", prediction, rounds)
    assert outcome.round_errors()[:3] == pytest.approx([1 - 100 / 120, 1 - 110 / 115, 130 / 105 - 1])
    assert outcome.round_errors()[3:] == [0.0] * 6
    rows = {row.what: row.value for row in score([outcome], {})[0]}
    assert rows["load: a round beside the others, median"] == 0.0
    assert rows["load: a round beside the others, p90"] == pytest.approx(0.181, abs=0.001)
    assert replace(outcome, rounds=rounds[:2]).round_errors() == []
    assert not any("beside the others" in row.what for row in score([replace(outcome, rounds=rounds[:2])], {})[0])
