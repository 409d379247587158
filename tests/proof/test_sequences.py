"""Random sequences of runs and acts over a real database: each move is legal or refused, and nothing is lost."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from queue import Queue
from threading import Barrier, Thread

import pytest
from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import delete

from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.proof.recommendation import (
    FINAL,
    JUDGED,
    MOVES,
    TRIED,
    Moved,
    Recommendation,
    State,
    Variant,
    accept,
    applied,
    declare,
    dismiss,
    moved,
    reopen,
    roll_back,
    snooze,
)
from pertoken.proof.stored import keep, newest, store_acts, stored
from pertoken.proof.trials import look
from pertoken.proof.trials.trial import Trial, read_trials, running
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import Store, open_store
from pertoken.store.repository import AdviceChanged, AdviceRepository
from pertoken.store.schema import advice as tables
from tests.postgres import server_url
from tests.proof.rows import DAY, NOW, row
from tests.proof.trials.minutes import CANARY, CONTROL, VARIANT, before
from tests.values import new_store

Act = Callable[[Recommendation, int], Sequence[Moved]]
ACTS: dict[str, Act] = {
    "accept": accept,
    "snooze": lambda recommendation, now_ts: snooze(recommendation, now_ts, now_ts + DAY),
    "dismiss": lambda recommendation, now_ts: dismiss(recommendation, now_ts, now_ts + 2 * DAY),
    "reopen": reopen,
    "declare": declare,
    "undo": roll_back,
}
MOVES_OF_PROOF = (
    "detected",
    "superseded",
    "verifying",
    *(move.code for move in MOVES if move.after in JUDGED),
    "decayed",
)
SET_BY_RUN = (State.OPEN, State.REFUSED, State.BLOCKED, State.FAILED, None)


class Life(RuleBasedStateMachine):
    """One rule and target, moved by runs, people and verdicts in any order."""

    target: AdviceRepository
    numbers: Iterator[int]
    reached: set[State]
    store: Store
    tried: set[int]
    """Recommendations of which a trial was begun."""

    @initialize()
    def begin(self) -> None:
        self.rule_id, self.now_ts = f"rule-{next(self.numbers)}", NOW
        with self.target.writing() as connection:
            connection.execute(delete(tables.trial))
            connection.execute(delete(tables.recommendation))
        self.frozen: dict[int, Variant] = {}

    @rule(state=strategies.sampled_from(SET_BY_RUN), hours=strategies.sampled_from((1, 20, 50)))
    def run(self, state: State | None, hours: int) -> None:
        """Simulate an advice run that proposes something, or nothing for this target."""
        self.now_ts += hours * 3600
        variants = {"variants": (VARIANT,)} if state is State.OPEN else {}
        times = {"created_ts": self.now_ts, "updated_ts": self.now_ts}
        recommendations = [] if state is None else [row(state, self.rule_id, **times, **variants)]
        keep(self.target, recommendations, (self.rule_id,), self.now_ts, "advisor")

    @precondition(lambda self: self.rows())
    @rule(name=strategies.sampled_from(sorted(ACTS)))
    def act(self, name: str) -> None:
        """Apply an act of a person."""
        self.attempt(lambda recommendation: ACTS[name](recommendation, self.now_ts))

    @precondition(lambda self: self.rows())
    @rule(code=strategies.sampled_from(MOVES_OF_PROOF))
    def prove(self, code: str) -> None:
        """Something is detected or judged."""
        self.attempt(lambda recommendation: self.proof(recommendation, code))

    @precondition(lambda self: self.rows())
    @rule(data=strategies.data())
    def go_on(self, data: strategies.DataObject) -> None:
        """Make a legal move of proof, so that sequences get far."""
        (recommendation,) = newest(self.rows())
        legal = [move.code for move in MOVES if move.code in MOVES_OF_PROOF and recommendation.state in move.before]
        if legal:
            code = data.draw(strategies.sampled_from(legal))
            self.attempt(lambda recommendation: self.proof(recommendation, code))

    def proof(self, recommendation: Recommendation, code: str) -> Sequence[Moved]:
        apply = applied if code == "detected" else moved
        return (apply(recommendation, code, code, self.now_ts),)

    @precondition(lambda self: self.rows())
    @rule()
    def try_it(self) -> None:
        """Begin a trial."""

        def begin(recommendation: Recommendation) -> Sequence[Moved]:
            after, trial = look.begin(
                self.store, self.target, recommendation, Settings(), self.now_ts, "someone", quality_waived=True
            )
            assert recommendation.state in TRIED and after.state is State.ACCEPTED and after.estimate is not None
            assert trial.recommendation_id == recommendation.recommendation_id
            self.tried.add(recommendation.recommendation_id)
            return ()

        self.attempt(begin)

    @precondition(lambda self: self.running())
    @rule()
    def stop(self) -> None:
        """End a trial."""
        (trial,) = self.running()
        look.stop(self.target, trial, self.now_ts)

    def running(self) -> tuple[Trial, ...]:
        with self.target.writing() as connection:
            return running(read_trials(connection))

    def attempt(self, act: Callable[[Recommendation], Sequence[Moved]]) -> None:
        (recommendation,) = newest(self.rows())
        try:
            after = act(recommendation)
        except BadInput as error:
            assert len(str(error).splitlines()) == 1
            return
        if after:
            store_acts(self.target, recommendation, after, "someone")

    def rows(self) -> list[Recommendation]:
        with self.target.writing() as connection:
            return [recommendation for recommendation in stored(connection) if recommendation.rule_id == self.rule_id]

    @invariant()
    def one_life_goes_on_and_estimates_stay_frozen(self) -> None:
        rows = self.rows() if hasattr(self, "rule_id") else []
        assert sorted(row.life for row in rows) == list(range(1, len(rows) + 1))
        assert all(row.state in FINAL for row in rows if row.life < len(rows))
        for stored_row in rows:
            if stored_row.recommendation_id in self.frozen:
                assert stored_row.estimate == self.frozen[stored_row.recommendation_id]
            if stored_row.estimate is not None:
                self.frozen[stored_row.recommendation_id] = stored_row.estimate
            assert (stored_row.until_ts is not None) == (stored_row.state in (State.SNOOZED, State.DISMISSED))
            assert stored_row.estimate is not None or stored_row.state not in (
                State.ACCEPTED,
                State.APPLIED,
                State.VERIFYING,
            )

    @invariant()
    def a_trial_runs_only_while_its_recommendation_is_accepted(self) -> None:
        if hasattr(self, "rule_id"):
            assert {trial.recommendation_id for trial in self.running()} <= {
                row.recommendation_id for row in self.rows() if row.state is State.ACCEPTED
            }
            assert len(self.running()) <= 1

    def teardown(self) -> None:
        """Check the history of every row against the table."""
        self.reached.update(row.state for row in self.rows() if hasattr(self, "rule_id"))
        legal = {(before, move.after, move.code) for move in MOVES for before in move.before}
        for recommendation in self.rows() if hasattr(self, "rule_id") else ():
            with self.target.writing() as connection:
                transitions = repository.transitions(connection, recommendation.recommendation_id)
            states = [None, *(State(move.to_state) for move in transitions)]
            assert [move.from_state for move in transitions] == states[:-1] and states[-1] is recommendation.state
            for earlier, move in zip(states, transitions, strict=False):
                assert (earlier, State(move.to_state), move.code) in legal


def test_random_sequences_of_runs_acts_and_verdicts_keep_to_the_table(tmp_path: Path) -> None:
    where = before(tmp_path, CANARY, CONTROL)

    class EmbeddedLife(Life):
        store, target = open_store(where), AdviceRepository(where)
        numbers, reached, tried = count(), set[State](), set[int]()

    run_state_machine_as_test(
        EmbeddedLife,
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
    assert len(EmbeddedLife.reached) >= 8, EmbeddedLife.reached
    assert EmbeddedLife.tried


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreLocation]:
    if request.param == "sqlite":
        yield new_store(tmp_path)
        return
    with server_url(tmp_path / "postgres") as url:
        yield new_store(locate(url))


def test_two_people_acting_at_once_lose_nothing(where: StoreLocation) -> None:
    target = AdviceRepository(where)
    (recommendation,) = keep(target, [row()], ("quantize",), NOW, "advisor")
    start, done = Barrier(2), Queue[tuple[str, str]]()

    def person(name: str, act: Act) -> None:
        mine = AdviceRepository(where)  # a connection of one's own
        start.wait(20)
        try:
            store_acts(mine, recommendation, act(recommendation, NOW + 1), name)
            done.put((name, "stored"))
        except AdviceChanged as error:
            done.put((name, str(error)))

    people = [Thread(target=person, args=literals) for literals in (("ann", accept), ("bob", ACTS["dismiss"]))]
    for thread in people:
        thread.start()
    for thread in people:
        thread.join(20)
    outcome = dict(done.get(timeout=20) for _ in people)
    (winner,) = (name for name, line in outcome.items() if line == "stored")
    (refused,) = (line for line in outcome.values() if line != "stored")
    state = {"ann": "accepted", "bob": "dismissed"}[winner]
    assert refused == (
        f"weights bf16 → fp8: was changed by someone else meanwhile (now {state}, by {winner}); look again"
    )
    with target.writing() as connection:
        (stands,) = stored(connection)
        moves = [(move.to_state, move.who) for move in repository.transitions(connection)]
    assert (stands.state.label, stands.version) == (state, 2)
    assert moves == [("OPEN", "advisor"), (stands.state.value, winner)]
