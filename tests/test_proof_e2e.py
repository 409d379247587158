"""Proof over real engines in compressed time: an hour is 5 s, a week 28 buckets, and the gates keep their counts.

Three llama.cpp servers serve every token, an agent records every row. One gets the 8-bit weights that a rule proposes,
which nobody declares; another loses its 8-bit weights, which nobody proposed. The third gets another context length
alone, and so little more than a restart. All are restarted as they are each week before. Two more get 8-bit weights of
which one is broken and one ends its outputs sooner. It takes 30 minutes:
`PERTOKEN_E2E_PROOF=1 python -m pytest -n 0 -s tests/test_proof_e2e.py`.

The agent's record of restarts is the one thing that is not compressed: the store keeps the last restart of an hour of
the clock, and the weeks of this test pass within one. The test therefore reads each restart as soon as the agent
recorded it, and hands all of them to the verdict, as the store of an engine that restarts once a week would.

What makes an hour of 5 s noisy is the machine, not the engine: an engine that the scheduler moves between CPUs, or that
waits for its own load generator, counts that time as work. Both engines therefore share a CPU that nothing else of this
test runs on, and take turns on it; each bucket has the same requests, sent one after another and away from its edges,
where the agent's ticks may be of either bucket. Where the kernel allows it they run before all other processes of that
CPU (round robin in real time): they need less than half of it, and what another process takes from them in a request
would count as cost. Where it does not, leave the machine to this test.
"""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Connection, func, select

from pertoken.catalog.market import load_market
from pertoken.cli import main
from pertoken.config import Settings
from pertoken.proof.judging.receipts import read_receipts
from pertoken.proof.recommendation import Recommendation, State
from pertoken.proof.stored import stored
from pertoken.proof.verdicts import Verdict, VerdictResult, read_verdicts
from pertoken.proof.verification.question import Cycle
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.query import read
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema import telemetry as t
from pertoken.text.receipt import to_markdown
from tests.llama import LlamaServer, Shape, write_model
from tests.proof.looks import detect_at, judge_at
from tests.recorded import agent, rows_of, scalar, until

pytestmark = pytest.mark.skipif(os.environ.get("PERTOKEN_E2E_PROOF") != "1", reason="PERTOKEN_E2E_PROOF=1 runs it")
WEEK = Cycle(bucket_s=5, buckets=28)
BASELINE_S = 4 * WEEK.week_s
"""Enough for twenty placebo dates."""
SHAPE = Shape(width=192, heads=6, layers=4, hidden=512)
REQUESTS = 40
"""To each engine in a bucket. A third would give the 1,000 tokens that a bucket needs to count; more of them make what
disturbs a single request a smaller share of the bucket's cost."""
PROMPT = 8
ENDS, ENDS_SOON = 0.9, 1.5
"""Weights of the end of an output: mean lengths of about 35 and 22 tokens."""
LIMIT = 80
"""Tokens at which outputs are cut that the model may end."""
RULE = "quantize-weights"
QUIET_S = 0.8
"""Seconds at both ends of a bucket in which no request is sent: an agent's tick takes 1 s."""


def pinned() -> tuple[Collection[int], Collection[int]]:
    """Return the CPUs of the engines and those of all else; the same where there is only one."""
    first, *rest = sorted(os.sched_getaffinity(0))
    return {first}, set(rest) or {first}


ENGINES, ALL_ELSE = pinned()


@contextmanager
def on(cpus: Collection[int], *, first: bool = False) -> Iterator[None]:
    """Run this thread, and the processes and threads that it starts, on some CPUs.

    `first`: before all others there, where the kernel allows it.
    """
    before, policy, priority = os.sched_getaffinity(0), os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setaffinity(0, cpus)
    if first:
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, priority)
        os.sched_setaffinity(0, before)


@contextmanager
def load(*servers: LlamaServer, answered: bool = False) -> Iterator[None]:
    """Send the same requests in every bucket, to one server after another. Their lengths repeat every week.

    `answered`: the model ends its outputs.
    """
    ended = threading.Event()

    def serve(bucket: int) -> None:
        generated = 36 + bucket % WEEK.buckets % 7
        for n in range(REQUESTS):
            if ended.is_set() or time.time() > (bucket + 1) * WEEK.bucket_s - QUIET_S:
                return  # a bucket that was too slow for its requests has too few tokens to count
            prompt = [20 + (31 * (bucket * REQUESTS + n) + 7 * k) % 200 for k in range(PROMPT)]
            for server in servers:
                with suppress(OSError, HTTPException, ValueError):  # it is being restarted
                    if answered:
                        server.answer(prompt, LIMIT, seed=bucket * REQUESTS + n)
                    else:
                        server.complete(prompt, generated)

    def run() -> None:
        bucket = int(time.time()) // WEEK.bucket_s + 1
        while not ended.wait(max(0.0, bucket * WEEK.bucket_s + QUIET_S - time.time())):
            serve(bucket)
            bucket += 1

    pacing = threading.Thread(target=run)
    pacing.start()
    try:
        yield
    finally:
        ended.set()
        pacing.join()


class Restarts:
    """Restarts of each engine as the agent recorded them, read before the next one of the same hour replaces them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ts_by_engine: dict[int, set[int]] = defaultdict(set)
        self._stored = read.restarts

    def up_to(self, connection: Connection, engine_id: int, end: int) -> tuple[int, ...]:
        """Return all restarts of an engine up to `end`, as `read.restarts` does of those that lie hours apart."""
        recorded = self._ts_by_engine[engine_id]
        recorded.update(self._stored(connection, engine_id, end))
        return tuple(sorted(ts for ts in recorded if ts <= end))

    def fewest(self) -> int:
        """Return the least number of restarts of an engine that are recorded now."""
        with open_store(locate(str(self._folder))).read() as connection:
            engine_ids = connection.execute(select(t.engine.c.engine_id)).scalars().all()
            return min(len(self.up_to(connection, engine_id, int(time.time()))) for engine_id in engine_ids)


def test_a_change_is_detected_verified_and_receipted_and_a_slowdown_gets_its_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = write_model(tmp_path / "full.gguf", shape=SHAPE)
    quantized = write_model(tmp_path / "quantized.gguf", shape=SHAPE, weights="Q8_0")
    folder = tmp_path / "db"
    faster = LlamaServer(full, slots=1, alias="faster")
    slower = LlamaServer(quantized, slots=1, alias="slower")
    same = LlamaServer(full, slots=1, alias="same")
    servers = faster, slower, same
    restarts = Restarts(folder)
    monkeypatch.setattr(read, "restarts", restarts.up_to)
    words = [word for server in servers for word in ("--engine", server.url)]
    with on(ALL_ELSE), ExitStack() as running:
        with on(ENGINES, first=True):
            for server in servers:
                running.enter_context(server)
        running.enter_context(agent(folder, *words, PERTOKEN_AGENT_DISCOVER="false"))
        running.enter_context(load(*servers))
        until(lambda: (scalar(folder, rows_of(faster, func.count())) or 0) >= 5, "the first ticks", 90)
        began = time.time()
        until(lambda: proposed(folder), "8-bit weights to be proposed", 180, 10)
        for week in (1, 2, 3):
            until(lambda: time.time() - began > week * WEEK.week_s, f"week {week}", BASELINE_S, 1)  # noqa: B023
            restart(*servers)
            until(lambda: restarts.fewest() >= week, f"restart {week} of all", 60, 1)  # noqa: B023
        until(lambda: time.time() - began > BASELINE_S, "four weeks before the change", BASELINE_S + 60, 1)
        faster.model, slower.model, same.context = quantized, full, same.context - 256
        restart(*servers)
        changed = time.time()
        until(lambda: detected(folder) == 3, "all changes to be detected", 60, 2)
        (applied,) = (row for row in rows(folder) if row.state is State.APPLIED)
        assert applied.rule_id == RULE and applied.target == "faster"
        until(lambda: time.time() - changed > 7 * WEEK.day_s, "a week after the change", 300, 1)
        until(lambda: judged(folder) == 3, "all verdicts", 4 * WEEK.week_s + 60, WEEK.day_s)
    by_name = {verdict.name.partition(" ")[0]: verdict for verdict in verdicts(folder)}
    print()
    for verdict in by_name.values():
        print(verdict.name, verdict.judgement)
    with open_store(locate(str(folder))).read("advice") as connection:
        receipts = read_receipts(connection)
    for receipt in receipts:
        print(to_markdown(receipt.read()))
        assert receipt.check().reproduced
    assert by_name["faster"].judgement.result is VerdictResult.CHEAPER
    assert by_name["faster"].recommendation_id == applied.recommendation_id
    assert by_name["slower"].judgement.result is VerdictResult.DEARER
    assert by_name["same"].judgement.result in (VerdictResult.NO_EFFECT, VerdictResult.INCONCLUSIVE)
    assert by_name["slower"].recommendation_id is None
    (after,) = (row for row in rows(folder) if row.recommendation_id == applied.recommendation_id)
    assert after.state is State.REALIZED and after.estimate == applied.estimate
    assert applied.recommendation_id in {receipt.recommendation_id for receipt in receipts}


def test_a_broken_server_and_a_terser_one_are_caught_by_the_output_guard(tmp_path: Path) -> None:
    usual = write_model(tmp_path / "usual.gguf", shape=SHAPE, end_bias=ENDS)
    broken = LlamaServer(usual, slots=1, alias="broken")
    terser = LlamaServer(usual, slots=1, alias="terser")
    folder = tmp_path / "db"
    words = [word for server in (broken, terser) for word in ("--engine", server.url)]
    with on(ALL_ELSE), ExitStack() as running:
        with on(ENGINES, first=True):
            running.enter_context(broken)
            running.enter_context(terser)
        running.enter_context(agent(folder, *words, PERTOKEN_AGENT_DISCOVER="false"))
        running.enter_context(load(broken, terser, answered=True))
        until(lambda: (scalar(folder, rows_of(broken, func.count())) or 0) >= 5, "the first ticks", 90)
        began = time.time()
        until(lambda: time.time() - began > 3 * WEEK.week_s, "three weeks before the change", 4 * WEEK.week_s, 1)
        proposed(folder)  # as a person does, which begins the advice
        detected(folder)
        broken.model = write_model(tmp_path / "broken.gguf", shape=SHAPE, weights="Q8_0", answers="!")
        terser.model = write_model(tmp_path / "terser.gguf", shape=SHAPE, weights="Q8_0", end_bias=ENDS_SOON)
        with on(ENGINES, first=True):
            broken.restart()
            terser.restart()
        until(lambda: detected(folder) == 2, "both changes to be detected", 60, 2)
        until(lambda: judged(folder) == 2, "both verdicts", 4 * WEEK.week_s + 60, WEEK.day_s)
    by_name = {verdict.name.partition(" ")[0]: verdict.judgement for verdict in verdicts(folder)}
    print(by_name)
    assert {judgement.result for judgement in by_name.values()} == {VerdictResult.OUTPUT_CHANGED}
    assert str(by_name["broken"].reason).startswith("outputs are longer")
    assert str(by_name["terser"].reason).startswith("outputs are terser")


def restart(*servers: LlamaServer) -> None:
    """Restart servers as they are now set."""
    with on(ENGINES, first=True):
        for server in servers:
            server.restart()


def proposed(folder: Path) -> bool:
    """Run the rules as a person does; return whether the engine with 32-bit weights is to get 8-bit ones."""
    done = CliRunner().invoke(main, ["advise", "--db", str(folder), "--since", "1h"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    matches = [row for row in rows(folder) if row.rule_id == RULE and row.target == "faster"]
    return any(match.state is State.OPEN for match in matches)


def detected(folder: Path) -> int:
    """Look for changes as a screen does, and return how many are known."""
    where = locate(str(folder))
    detect_at(where, AdviceRepository(where), load_market(), Settings(), int(time.time()))
    return len(verdicts(folder))


def judged(folder: Path) -> int:
    """Judge what is due in compressed time, and return how many verdicts are decided."""
    where = locate(str(folder))
    judge_at(where, AdviceRepository(where), Settings(), int(time.time()), WEEK)
    return sum(verdict.judged_ts is not None for verdict in verdicts(folder))


def verdicts(folder: Path) -> tuple[Verdict, ...]:
    with open_store(locate(str(folder))).read("advice") as connection:
        return read_verdicts(connection)


def rows(folder: Path) -> tuple[Recommendation, ...]:
    with open_store(locate(str(folder))).read("advice") as connection:
        return stored(connection)
