"""Proof over real engines in compressed time: an hour is 5 s, a week 28 buckets, and the gates keep their counts.

Two llama.cpp servers serve every token, an agent records every row. One gets the parallel slots that a rule proposes,
which nobody declares; the other loses its slots, which nobody proposed. It takes 13 minutes, and a machine on which
little else runs: `PERTOKEN_E2E_PROOF=1 python -m pytest -n 0 -s tests/test_proof_e2e.py`.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import func

from pertoken.catalog.market import load_market
from pertoken.cli import main
from pertoken.config import Settings
from pertoken.proof.detection import detect
from pertoken.proof.judging.judge import judge_changes
from pertoken.proof.judging.receipts import read_receipts
from pertoken.proof.receipts.markdown import to_markdown
from pertoken.proof.recommendation import Recommendation, State
from pertoken.proof.stored import stored
from pertoken.proof.verdicts import Result, Verdict, read_verdicts
from pertoken.proof.verification.question import Cycle
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository
from tests.llama import CONTEXT, LlamaServer, Shape, write_model
from tests.recorded import agent, rows_of, scalar, until

pytestmark = pytest.mark.skipif(os.environ.get("PERTOKEN_E2E_PROOF") != "1", reason="PERTOKEN_E2E_PROOF=1 runs it")
WEEK = Cycle(bucket_s=5, buckets=28)
BASELINE_S = 4 * WEEK.week_s
"""Enough for twenty placebo dates."""
BURST = 8
PERIOD_S = WEEK.bucket_s / 3
SLOTS = 8


@contextmanager
def bursts(server: LlamaServer, seed: int) -> Iterator[None]:
    """Send eight requests at once, again and again at the same times, whatever the server takes for them.

    Their lengths repeat every week: the load is that of a service, and no slower server gets less of it.
    """
    ended = threading.Event()

    def ask(n: int, generated: int) -> None:
        with suppress(OSError, HTTPException, ValueError):  # the server is being restarted
            server.complete([20 + (seed + 7 * n + k) % 200 for k in range(60)], generated)

    def run() -> None:
        start, n = time.monotonic(), 0
        while not ended.wait(max(0.0, start + n * PERIOD_S - time.monotonic())):
            phase = int(time.time()) // WEEK.bucket_s % WEEK.buckets
            generated = 36 + phase % 7
            asked = [threading.Thread(target=ask, args=(n * BURST + k, generated)) for k in range(BURST)]
            for model in asked:
                model.start()
            for model in asked:
                model.join()
            n += 1

    pacing = threading.Thread(target=run)
    pacing.start()
    try:
        yield
    finally:
        ended.set()
        pacing.join()


def test_a_change_is_detected_verified_and_receipted_and_a_slowdown_gets_its_verdict(tmp_path: Path) -> None:
    model = write_model(tmp_path / "tiny.gguf", shape=Shape(width=192, heads=6, layers=4, hidden=512))
    folder = tmp_path / "db"
    faster = LlamaServer(model, slots=1, context=CONTEXT * SLOTS, alias="faster")
    slower = LlamaServer(model, slots=SLOTS, alias="slower")
    engines = [word for model in (faster, slower) for word in ("--engine", model.url)]
    with (
        faster,
        slower,
        agent(folder, *engines, PERTOKEN_AGENT_DISCOVER="false"),
        bursts(faster, 1),
        bursts(slower, 2),
    ):
        until(lambda: (scalar(folder, rows_of(faster, func.count())) or 0) >= 5, "the first ticks", 90)
        began = time.time()
        until(lambda: proposed(folder), "parallel slots to be proposed", 180)
        until(lambda: time.time() - began > BASELINE_S, "three weeks before the change", BASELINE_S + 60)
        faster.slots, faster.context = SLOTS, CONTEXT * SLOTS
        slower.slots, slower.context = 1, CONTEXT
        for served in (faster, slower):
            served.restart()
        changed = time.time()
        until(lambda: detected(folder) == 2, "both changes to be detected", 60)
        (row,) = (row for row in rows(folder) if row.state is State.APPLIED)
        assert row.rule_id == "continuous-batching" and row.target == "faster"
        until(lambda: time.time() - changed > 7 * WEEK.day_s, "a week after the change", 300)
        judged(folder)
        print([verdict.judgement for verdict in verdicts(folder)])
        until(lambda: judged(folder) == 2, "both verdicts", 4 * WEEK.week_s + 60)
    by_name = {verdict.name.partition(" ")[0]: verdict for verdict in verdicts(folder)}
    print()
    for verdict in by_name.values():
        print(verdict.name, verdict.judgement)
    with open_store(locate(str(folder))).read("advice") as connection:
        receipts = read_receipts(connection)
    for receipt in receipts:
        print(to_markdown(receipt.read()))
        assert receipt.check().reproduced
    assert by_name["faster"].judgement.result is Result.CHEAPER
    assert by_name["faster"].recommendation_id == row.recommendation_id
    assert by_name["slower"].judgement.result is Result.DEARER
    assert by_name["slower"].recommendation_id is None
    assert [proposal.state for proposal in rows(folder) if proposal.recommendation_id == row.recommendation_id] == [
        State.REALIZED
    ]
    assert row.recommendation_id in {receipt.recommendation_id for receipt in receipts}


def proposed(folder: Path) -> bool:
    """Run the rules as a person does; return whether the engine with one slot is to get more."""
    done = CliRunner().invoke(main, ["advise", "--db", str(folder), "--since", "1h"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    proposals = [row for row in rows(folder) if row.rule_id == "continuous-batching" and row.target == "faster"]
    return any(proposal.state is State.OPEN for proposal in proposals)


def detected(folder: Path) -> int:
    """Look for changes as a screen does, and return how many are known."""
    where = locate(str(folder))
    detect(open_store(where), AdviceRepository(where), load_market(), Settings(), int(time.time()))
    return len(verdicts(folder))


def judged(folder: Path) -> int:
    """Judge what is due in compressed time, and return how many verdicts are decided."""
    where = locate(str(folder))
    judge_changes(open_store(where), AdviceRepository(where), Settings(), int(time.time()), WEEK)
    return sum(verdict.judged_ts is not None for verdict in verdicts(folder))


def verdicts(folder: Path) -> tuple[Verdict, ...]:
    with open_store(locate(str(folder))).read("advice") as connection:
        return read_verdicts(connection)


def rows(folder: Path) -> tuple[Recommendation, ...]:
    with open_store(locate(str(folder))).read("advice") as connection:
        return stored(connection)
