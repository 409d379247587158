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
from pertoken.proof import acts
from pertoken.proof.findings import keep
from pertoken.proof.lifecycle import FINAL, JUDGED, MOVES, TRIED, Moved, moved
from pertoken.proof.recommendation import Recommendation, State, Variant
from pertoken.proof.stored import newest, store_acts, stored
from pertoken.proof.trials import look
from pertoken.proof.trials.stored import read_trials, running
from pertoken.proof.trials.trial import Trial
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
    "accept": acts.accept,
    "snooze": lambda each, now_ts: acts.snooze(each, now_ts, now_ts + DAY),
    "dismiss": lambda each, now_ts: acts.dismiss(each, now_ts, now_ts + 2 * DAY),
    "reopen": acts.reopen,
    "declare": acts.declare,
    "undo": acts.roll_back,
}
MOVES_OF_PROOF = (
    "detected",
    "superseded",
    "verifying",
    *(each.code for each in MOVES if each.after in JUDGED),
    "decayed",
)
FOUND = (State.OPEN, State.REFUSED, State.BLOCKED, State.FAILED, None)


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

    @rule(state=strategies.sampled_from(FOUND), hours=strategies.sampled_from((1, 20, 50)))
    def run(self, state: State | None, hours: int) -> None:
        """An advice run finds something, or nothing of this target."""
        self.now_ts += hours * 3600
        variants = {"variants": (VARIANT,)} if state is State.OPEN else {}
        times = {"created_ts": self.now_ts, "updated_ts": self.now_ts}
        found = [] if state is None else [row(state, self.rule_id, **times, **variants)]
        keep(self.target, found, (self.rule_id,), self.now_ts, "advisor")

    @precondition(lambda self: self.rows())
    @rule(name=strategies.sampled_from(sorted(ACTS)))
    def act(self, name: str) -> None:
        """A person does something."""
        self.attempt(lambda each: ACTS[name](each, self.now_ts))

    @precondition(lambda self: self.rows())
    @rule(code=strategies.sampled_from(MOVES_OF_PROOF))
    def prove(self, code: str) -> None:
        """Something is detected or judged."""
        self.attempt(lambda each: self.proof(each, code))

    @precondition(lambda self: self.rows())
    @rule(data=strategies.data())
    def go_on(self, data: strategies.DataObject) -> None:
        """Make a legal move of proof, so that sequences get far."""
        (each,) = newest(self.rows())
        legal = [move.code for move in MOVES if move.code in MOVES_OF_PROOF and each.state in move.before]
        if legal:
            code = data.draw(strategies.sampled_from(legal))
            self.attempt(lambda each: self.proof(each, code))

    def proof(self, each: Recommendation, code: str) -> Sequence[Moved]:
        apply = acts.applied if code == "detected" else moved
        return (apply(each, code, code, self.now_ts),)

    @precondition(lambda self: self.rows())
    @rule()
    def try_it(self) -> None:
        """A person begins a trial."""

        def begin(each: Recommendation) -> Sequence[Moved]:
            after, trial = look.begin(
                self.store, self.target, each, Settings(), self.now_ts, "someone", quality_waived=True
            )
            assert each.state in TRIED and after.state is State.ACCEPTED and after.estimate is not None
            assert trial.recommendation_id == each.recommendation_id
            self.tried.add(each.recommendation_id)
            return ()

        self.attempt(begin)

    @precondition(lambda self: self.running())
    @rule()
    def stop(self) -> None:
        """A person ends a trial."""
        (trial,) = self.running()
        look.stop(self.target, trial, self.now_ts)

    def running(self) -> tuple[Trial, ...]:
        with self.target.writing() as connection:
            return running(read_trials(connection))

    def attempt(self, act: Callable[[Recommendation], Sequence[Moved]]) -> None:
        (each,) = newest(self.rows())
        try:
            after = act(each)
        except BadInput as error:
            assert len(str(error).splitlines()) == 1
            return
        if after:
            store_acts(self.target, each, after, "someone")

    def rows(self) -> list[Recommendation]:
        with self.target.writing() as connection:
            return [each for each in stored(connection) if each.rule_id == self.rule_id]

    @invariant()
    def one_life_goes_on_and_estimates_stay_frozen(self) -> None:
        rows = self.rows() if hasattr(self, "rule_id") else []
        assert sorted(each.life for each in rows) == list(range(1, len(rows) + 1))
        assert all(each.state in FINAL for each in rows if each.life < len(rows))
        for each in rows:
            if each.recommendation_id in self.frozen:
                assert each.estimate == self.frozen[each.recommendation_id]
            if each.estimate is not None:
                self.frozen[each.recommendation_id] = each.estimate
            assert (each.until_ts is not None) == (each.state in (State.SNOOZED, State.DISMISSED))
            assert each.estimate is not None or each.state not in (State.ACCEPTED, State.APPLIED, State.VERIFYING)

    @invariant()
    def a_trial_runs_only_while_its_recommendation_is_accepted(self) -> None:
        if hasattr(self, "rule_id"):
            assert {each.recommendation_id for each in self.running()} <= {
                each.recommendation_id for each in self.rows() if each.state is State.ACCEPTED
            }
            assert len(self.running()) <= 1

    def teardown(self) -> None:
        """Check the history of every row against the table."""
        self.reached.update(each.state for each in self.rows() if hasattr(self, "rule_id"))
        legal = {(before, move.after, move.code) for move in MOVES for before in move.before}
        for each in self.rows() if hasattr(self, "rule_id") else ():
            with self.target.writing() as connection:
                transitions = repository.transitions(connection, each.recommendation_id)
            states = [None, *(State(move.to_state) for move in transitions)]
            assert [move.from_state for move in transitions] == states[:-1] and states[-1] is each.state
            for earlier, move in zip(states, transitions, strict=False):
                assert (earlier, State(move.to_state), move.code) in legal


def test_random_sequences_of_runs_acts_and_verdicts_keep_to_the_table(tmp_path: Path) -> None:
    where = before(tmp_path, CANARY, CONTROL)

    class Here(Life):
        store, target = open_store(where), AdviceRepository(where)
        numbers, reached, tried = count(), set[State](), set[int]()

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=8,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
    assert len(Here.reached) >= 8, Here.reached
    assert Here.tried


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreLocation]:
    if request.param == "sqlite":
        yield new_store(tmp_path)
        return
    with server_url(tmp_path / "postgres") as url:
        yield new_store(locate(url))


def test_two_people_acting_at_once_lose_nothing(where: StoreLocation) -> None:
    target = AdviceRepository(where)
    (each,) = keep(target, [row()], ("quantize",), NOW, "advisor")
    start, done = Barrier(2), Queue[tuple[str, str]]()

    def person(name: str, act: Act) -> None:
        mine = AdviceRepository(where)  # a connection of one's own
        start.wait(20)
        try:
            store_acts(mine, each, act(each, NOW + 1), name)
            done.put((name, "stored"))
        except AdviceChanged as error:
            done.put((name, str(error)))

    people = [Thread(target=person, args=each) for each in (("ann", acts.accept), ("bob", ACTS["dismiss"]))]
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
