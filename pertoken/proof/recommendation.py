"""Recommendation: its variants and state, the state machine of its life, and the acts of a person."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from enum import StrEnum
from functools import cache, partial
from importlib.resources import files
from itertools import cycle
from types import NoneType, UnionType
from typing import Any, TypedDict, TypeVar, Unpack, get_args, get_origin, get_type_hints

from pertoken.errors import BadInput
from pertoken.forecast.tiers import Tier
from pertoken.savings.saving import Money as Money
from pertoken.savings.saving import Saving, surest
from pertoken.store.schema.shared import stable_id
from pertoken.units import format_duration, format_utc


class State(StrEnum):
    """State of a recommendation, in the order of lists; `proof.lifecycle` holds the legal moves."""

    OPEN = "OPEN"
    """Proposed and priced."""
    ACCEPTED = "ACCEPTED"
    """A person will apply one of its variants; the estimate of that variant is frozen."""
    APPLIED = "APPLIED"
    """A person declared it applied, or an epoch with its changes was detected."""
    VERIFYING = "VERIFYING"
    """Enough of the time after the change is being collected for a verdict."""
    REALIZED = "REALIZED"
    """The promised saving was measured."""
    PARTIAL = "PARTIAL"
    """A part of the promised saving was measured."""
    NO_EFFECT = "NO_EFFECT"
    """No saving was measured."""
    REGRESSED = "REGRESSED"
    """Tokens cost more than before."""
    OUTPUT_CHANGED = "OUTPUT_CHANGED"
    """Outputs changed: nothing counts as saved until their quality is checked."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """Measurements decide nothing; the reason is with the verdict."""
    DECAYED = "DECAYED"
    """A saving that was measured once is not there any more."""
    ROLLED_BACK = "ROLLED_BACK"
    """The change was undone."""
    SNOOZED = "SNOOZED"
    """Put off until a date."""
    DISMISSED = "DISMISSED"
    """Declined until a date; its dollars count as declined."""
    BLOCKED = "BLOCKED"
    """The rule needs something that was not measured or is not known."""
    REFUSED = "REFUSED"
    """The rule looked and had nothing to propose, with its reason."""
    FAILED = "FAILED"
    """The rule broke; the reason holds its error."""
    SUPERSEDED = "SUPERSEDED"
    """Another recommendation made the same change."""
    EXPIRED = "EXPIRED"
    """Proposed once; its rule did not propose it again."""

    @property
    def label(self) -> str:
        """The state as people read it: `no effect`."""
        return self.value.replace("_", " ").lower()


@dataclass(frozen=True)
class EvidenceLine:
    """One series a rule read."""

    series: str
    unit: str
    mean: float | None
    p50: float | None
    p95: float | None
    n: int
    provenance: str | None
    missing: str | None = None
    """Why it could not be read; every number is None then."""


@dataclass(frozen=True)
class LatencyLine:
    """One quantile over requests before and after the change, milliseconds as (low, likely, high)."""

    figure: str
    """`TTFT p95`."""
    before: tuple[float, float, float] | None
    """At the p95 demand; None where more arrives than is served."""
    after: tuple[float, float, float] | None
    measured_ms: float | None
    """Before, over the whole window; None where its engine does not report it."""
    slo_ms: float | None
    provenance: str


@dataclass(frozen=True)
class ChangeLine:
    """One field that changes, in words."""

    where: str
    """`Llama-70B`, `4 replicas of chat`, a host or a device."""
    field: str
    before: str
    after: str


@dataclass(frozen=True)
class Edit:
    """One field that a variant changes, as JSON values. Detection compares it with the present fleet."""

    kind: str
    """`service`, `deployment`, `device`, `host` or `fleet`."""
    target: int | str
    """Name of a service, else an id."""
    field: str
    """A field of `state.diff.Change`; `running` of a removed deployment or a released host."""
    before: object
    after: object


@dataclass(frozen=True)
class Refusal:
    """One reason of a rule, or of its pricing, not to propose something; it may stand beside proposals."""

    code: str
    reason: str


@dataclass(frozen=True)
class RecordLine:
    """Realised over promised savings of a rule, by which an estimate was corrected."""

    receipts: int
    """Of the rule."""
    ratio: float
    """Shrunk towards 1; the likely figures are multiplied by it."""
    ratio_sd: float
    widening: float
    """By which the interval is wider, beside the ratio."""


@dataclass(frozen=True)
class Variant:
    """One proposal of a rule for a target, priced. Money is nano-USD per month of 730 h, as (low, likely, high)."""

    key: str
    """Hash of the changes, without their costs (`Diff.key`)."""
    title: str
    changes: tuple[ChangeLine, ...] = ()
    edits: tuple[Edit, ...] = ()
    """The same as values; empty for advice of an older pertoken, which is not detected."""
    commands: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    saving: Saving | None = None
    """None where it has no price, or where a person has to confirm something first."""
    if_confirmed: Saving | None = None
    """Saving once a person has confirmed `to_confirm`; in no total and in no plan."""
    to_confirm: str | None = None
    throughput_ratio: tuple[float, float, float] | None = None
    slo: str = "unknown"
    """`pass`, `near_miss`, `fail` or `unknown`."""
    latency: tuple[LatencyLine, ...] = ()
    latency_unknown: str | None = None
    """Why there are no lines of it."""
    replicas_needed: tuple[int | None, int | None] | None = None
    """Fewest replicas, before and after, that hold all requests of the service within the SLO; None if none does."""
    replicas: tuple[int, int] | None = None
    """Replicas before and after, where their number changes."""
    released: tuple[str, ...] = ()
    """Hosts that pricing gives back."""
    moving: tuple[str, ...] = ()
    """Costs of a change of provider or region: data that leaves, both sides running, terms, and unknown costs."""
    moving_once: Money | None = None
    """The part of them that is paid once, nano-USD; None without such a change, or where a part is not known."""
    risk: str = "none"
    """Possible harm: `none`, `latency`, `availability` or `quality`."""
    effort: str = "low"
    """`low`, `medium` or `high`."""
    requires: tuple[str, ...] = ()
    """Rules that must be applied before."""
    excludes: tuple[str, ...] = ()
    """Rules that cannot be applied beside it."""
    touches: tuple[str, ...] = ()
    """Services and hosts it changes: of variants that touch the same only one counts in a total."""
    provenance: str | None = None
    unpriced: str | None = None
    """Why there is no money in it."""
    break_even: str | None = None
    """From which value of an unmeasured number it pays."""
    tier: Tier | None = None
    """Basis of its forecast; None without a forecast, and in advice of an older pertoken."""
    assumptions: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    record: RecordLine | None = None
    """Track record that its figures are corrected by; None where its rule has no receipts."""
    proposal: str = ""
    """Changes as JSON, which `checks.candidate` reads for a plan. Empty in older advice."""

    @property
    def net(self) -> Money | None:
        """Net change of the bill; None without a saving."""
        return None if self.saving is None else self.saving.net

    @property
    def capacity(self) -> Money | None:
        """Additional work for the bill, never added to the net change; None without a saving."""
        return None if self.saving is None else self.saving.capacity

    @property
    def uncounted(self) -> str | None:
        """Why no total and no plan can hold it; None where one can."""
        return self.unpriced or self.to_confirm or self.break_even

    @property
    def pays_more(self) -> bool:
        """Whether the bill would rise, for more capacity than it rises by."""
        return self.saving is not None and self.saving.pays_more

    @property
    def may_rise(self) -> bool:
        """Whether the bill, which likely falls or stays, rises at the low end."""
        return (self.saving or self.if_confirmed or Saving()).may_rise

    @property
    def rank(self) -> tuple[int, ...]:
        """Sort key, the largest first: by the sure saving, then by the bill that falls once confirmed.

        A variant without a saving is between savings and losses. Capacity to confirm does not count: a test of minutes
        comes before another model with the same bill.
        """
        forecast = self.tier is not None
        saving, confirmed = self.saving or Saving(), self.if_confirmed or Saving()
        return *saving.sure_first(forecast=forecast), *surest(confirmed.net, forecast=forecast)


@dataclass(frozen=True)
class Recommendation:
    """Proposal, refusal or failure of one rule for one target."""

    recommendation_id: int
    """Of rule, target and life."""
    rule_id: str
    state: State
    title: str
    """Of its best variant, else of the rule."""
    target: str
    """Service, deployment or host it is about, as people call it."""
    target_kind: str = "fleet"
    """`service`, `deployment`, `host` or `fleet`; `load` for a plugin that could not be loaded."""
    target_key: str = ""
    """Name of the service, or id of the deployment or host as digits."""
    life: int = 1
    """Number of this proposal, from 1: a proposal repeated after its end has the next life."""
    deployment_id: int | None = None
    reason: str | None = None
    remedy: str | None = None
    variants: tuple[Variant, ...] = ()
    """Best first; none unless it is or was open. They stay as they were once a person decided."""
    refusals: tuple[Refusal, ...] = ()
    ignored: int = 0
    """Proposals that equal the present."""
    evidence: tuple[EvidenceLine, ...] = ()
    window_s: int | None = None
    """Seconds of the window that the evidence is of; None for a plugin that did not load, and for older advice."""
    owner: str | None = None
    """Who decides on changes of its service, by the settings; None where nobody is named."""
    prices: tuple[str, ...] = ()
    """Present price of an hour of each kind of device that it is about, with its origin and date."""
    output: str = ""
    """Output and log of the rule; the end of a long one."""
    unconfirmed: str | None = None
    """Why the last run did not propose it again, while it stays open for one more run and is in no total."""
    until_ts: int | None = None
    """End of a snooze or dismissal."""
    variant: str | None = None
    """Key of the variant that was accepted or applied."""
    estimate: Variant | None = None
    """That variant as it was then; it never changes."""
    created_ts: int = 0
    updated_ts: int = 0
    version: int = 0

    @property
    def counted(self) -> bool:
        """Whether its dollars are in totals: it is open, the last run confirmed it, and its bill does not rise."""
        return self.state is State.OPEN and self.unconfirmed is None and not self.pays_more

    @property
    def pays_more(self) -> bool:
        """Whether its chosen variant pays more to serve more."""
        return self.chosen is not None and self.chosen.pays_more

    @property
    def best(self) -> Variant | None:
        """The variant that surely saves most."""
        return self.variants[0] if self.variants else None

    @property
    def rank(self) -> tuple[int, ...]:
        """Sort key, the largest first: of its best variant."""
        return self.best.rank if self.best else ()

    @property
    def may_rise(self) -> bool:
        """Whether the bill, which likely falls or stays, rises at the low end of its chosen variant."""
        return self.chosen is not None and self.chosen.may_rise

    @property
    def chosen(self) -> Variant | None:
        """The variant that was accepted or applied, as it was then; else the best one."""
        return self.estimate or self.best

    @property
    def change(self) -> str:
        """Title of the accepted or applied variant; else of the proposal."""
        return self.title if self.estimate is None else self.estimate.title

    @property
    def subject(self) -> tuple[str, str, str]:
        """Rule, kind and key of the target: its identity over all lives."""
        return self.rule_id, self.target_kind, self.target_key

    @property
    def targets(self) -> frozenset[str]:
        """Services and hosts that its chosen variant changes; its own target where none is known."""
        touches = self.chosen.touches if self.chosen else ()
        return frozenset(touches or (f"{self.target_kind}:{self.target_key}",))


def best_of_each_target(rows: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
    """Return the proposals that a total counts, best first: one for each service or host.

    Accepted changes are counted apart, and a proposal for their targets is priced on the bill before them.
    """
    rows = tuple(rows)
    touched, kept = _accepted_targets(rows), []
    for row in sorted((row for row in rows if row.counted), key=_worth):
        if not row.targets & touched:
            touched |= row.targets
            kept.append(row)
    return tuple(kept)


def beside_accepted(rows: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
    """Return the proposals for a target of an accepted change: their prices are those before it."""
    rows = tuple(rows)
    touched = _accepted_targets(rows)
    return tuple(row for row in rows if row.counted and row.targets & touched)


def _accepted_targets(rows: Iterable[Recommendation]) -> frozenset[str]:
    return frozenset().union(*(row.targets for row in rows if row.state in (State.ACCEPTED, State.APPLIED)))


def _worth(row: Recommendation) -> tuple[object, ...]:
    return tuple(-dollars for dollars in row.rank), row.recommendation_id


def total(monies: Iterable[Money | None]) -> Money | None:
    """Return the sum of the known amounts; None if none is known."""
    amounts = [money for money in monies if money is not None]
    if not amounts:
        return None
    low, likely, high = (sum(column) for column in zip(*amounts, strict=True))
    return low, likely, high


def identity(rule_id: str, target_kind: str, target_key: str, life: int = 1) -> int:
    """Return the id of a recommendation: of its rule, its target and its life, whatever state it is in."""
    return stable_id("advice", rule_id, target_kind, target_key, life)


def full_id(recommendation: Recommendation) -> str:
    """Return the id as people read it: 16 hexadecimal digits."""
    return f"{recommendation.recommendation_id % 2**64:016x}"


def short_id(recommendation: Recommendation) -> str:
    """Return the first digits of the id, which name a piece of advice among thousands."""
    return full_id(recommendation)[:8]


Record = TypeVar("Record")
_Reader = Callable[[Any], object]


def read_record(kind: Callable[..., Record], values: Mapping[str, object]) -> Record:
    """Return a dataclass from the JSON values of its fields; a field that is absent has its default.

    Raises TypeError or AttributeError for the values of another class, ValueError for a word that an enumeration lacks.
    """
    readers = _readers(kind)
    return kind(
        **{
            name: value if value is None or name not in readers else readers[name](value)
            for name, value in values.items()
        }
    )


@cache
def _readers(kind: Callable[..., object]) -> Mapping[str, _Reader]:
    """Return by name how to read each field that JSON has in another form."""
    readers = {name: _reader(hint) for name, hint in get_type_hints(kind).items()}
    return {name: reader for name, reader in readers.items() if reader is not None}


def _reader(hint: object) -> _Reader | None:
    """Return how to read a value of a type; None for a type that JSON has itself."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        alternatives = [argument for argument in arguments if argument is not NoneType]
        return _reader(alternatives[0]) if len(alternatives) == 1 else None
    if origin is tuple:
        readers = [_reader(argument) for argument in arguments if argument is not ...]
        if not any(readers):
            return tuple
        return lambda values: tuple(
            value if read is None else read(value)
            for read, value in zip(cycle(readers) if arguments[-1] is ... else readers, values, strict=False)
        )
    if origin is frozenset:
        return lambda values: frozenset(map(arguments[0], values))
    if not isinstance(hint, type):
        return None
    return partial(read_record, hint) if is_dataclass(hint) else hint if issubclass(hint, StrEnum) else None


GO_BACK = "go-back"
LEAVE_HOST = "leave-host"


@cache
def built_in_page(rule_id: str) -> str | None:
    """Return the text of `pertoken rules explain` for advice that no plugin gives; None for a plugin's rule."""
    if rule_id not in (GO_BACK, LEAVE_HOST):
        return None
    page = files("pertoken.proof").joinpath("pages", f"{rule_id}.txt")
    return page.read_text(encoding="utf-8").removesuffix("\n")


SET_BY_RUN = (State.OPEN, State.FAILED, State.BLOCKED, State.REFUSED)
"""States that advice runs move: nobody has decided anything yet."""
UNDER_WAY = (State.ACCEPTED, State.APPLIED, State.VERIFYING)
"""States between a decision and its verdict."""
PUT_OFF = (State.SNOOZED, State.DISMISSED)
"""States that end at a date."""
JUDGED = (State.REALIZED, State.PARTIAL, State.NO_EFFECT, State.REGRESSED, State.OUTPUT_CHANGED, State.INCONCLUSIVE)
"""States with a verdict."""
UNDOABLE = (State.APPLIED, State.VERIFYING, *JUDGED, State.DECAYED)
"""States of a change that runs, or may still run."""
DONE = (*JUDGED, State.DECAYED, State.ROLLED_BACK)
"""States of applied recommendations that have a verdict or were undone."""
FINAL = (*DONE, State.SUPERSEDED, State.EXPIRED)
"""States that end a life: the next proposal of the rule for the target opens the next one."""
TRIED = (State.OPEN, State.ACCEPTED)
"""States in which a trial can begin: it accepts an open recommendation and is no separate move."""


class IllegalMove(BadInput):
    """A move that the lifecycle does not have."""


@dataclass(frozen=True, slots=True)
class Move:
    """One kind of move."""

    code: str
    """Reason code, stored with each such move."""
    before: tuple[State | None, ...]
    """States it starts from; None: there is no recommendation yet."""
    after: State
    verb: str
    """Participle of the act, as in `it cannot be …`."""
    command: str | None = None
    """The command by which a person makes it; None for moves of runs and verdicts."""


MOVES = (
    # An advice run
    Move("proposed", (None, State.FAILED, State.BLOCKED, State.REFUSED), State.OPEN, "proposed"),
    Move("refused", (None, State.OPEN, State.FAILED, State.BLOCKED, State.EXPIRED), State.REFUSED, "refused"),
    Move("blocked", (None, State.OPEN, State.FAILED, State.REFUSED, State.EXPIRED), State.BLOCKED, "blocked"),
    Move("failed", (None, State.OPEN, State.BLOCKED, State.REFUSED, State.EXPIRED), State.FAILED, "marked as failed"),
    Move("not-found", SET_BY_RUN, State.EXPIRED, "expired"),
    Move("snooze-ended", (State.SNOOZED,), State.OPEN, "woken"),
    Move("dismissal-ended", (State.DISMISSED,), State.OPEN, "proposed again"),
    # A person
    Move("accepted", (State.OPEN,), State.ACCEPTED, "accepted", "accept"),
    Move("snoozed", (State.OPEN,), State.SNOOZED, "snoozed", "snooze"),
    Move("dismissed", (State.OPEN, State.SNOOZED), State.DISMISSED, "dismissed", "dismiss"),
    Move("reopened", PUT_OFF, State.OPEN, "reopened", "reopen"),
    Move("withdrawn", (State.ACCEPTED,), State.EXPIRED, "reopened", "reopen"),
    Move("declared", (State.OPEN, *PUT_OFF, State.ACCEPTED), State.APPLIED, "marked as applied", "applied"),
    Move("undone", UNDOABLE, State.ROLLED_BACK, "rolled back", "undo"),
    # Changes that were detected, and verdicts
    Move("detected", (State.OPEN, *PUT_OFF, State.ACCEPTED), State.APPLIED, "marked as applied"),
    Move("superseded", (State.OPEN, *PUT_OFF, State.ACCEPTED), State.SUPERSEDED, "superseded"),
    Move("verifying", (State.APPLIED,), State.VERIFYING, "verified"),
    Move("realized", (State.VERIFYING,), State.REALIZED, "judged"),
    Move("partial", (State.VERIFYING,), State.PARTIAL, "judged"),
    Move("no-effect", (State.VERIFYING,), State.NO_EFFECT, "judged"),
    Move("regressed", (State.VERIFYING,), State.REGRESSED, "judged"),
    Move("output-changed", (State.VERIFYING,), State.OUTPUT_CHANGED, "judged"),
    Move("inconclusive", (State.VERIFYING,), State.INCONCLUSIVE, "judged"),
    Move("decayed", (State.REALIZED, State.PARTIAL), State.DECAYED, "marked as decayed"),
    Move("reverted", UNDOABLE, State.ROLLED_BACK, "rolled back"),
)
"""Every legal move, by its reason code."""
_BY_CODE = {move.code: move for move in MOVES}


@dataclass(frozen=True, slots=True)
class Moved:
    """A recommendation after a move or an update, with the reason that is stored."""

    recommendation: Recommendation
    code: str
    why: str


class MoveFields(TypedDict, total=False):
    """Other fields of a recommendation that change with a move."""

    reason: str
    until_ts: int | None
    variant: str
    estimate: Variant
    unconfirmed: None
    refusals: tuple[Refusal, ...]


def next_moves(state: State) -> Iterator[Move]:
    """Yield the moves that a person can make from a state."""
    return (move for move in MOVES if move.command is not None and state in move.before)


def commands(state: State) -> tuple[str, ...]:
    """Return the commands that a person can give in a state, a trial after an acceptance."""
    names = [move.command for move in next_moves(state) if move.command is not None]
    if state in TRIED:
        names.insert(int(state is State.OPEN), "trial")
    return tuple(dict.fromkeys(names))


def moved(recommendation: Recommendation, code: str, why: str, now_ts: int, **changes: Unpack[MoveFields]) -> Moved:
    """Make one move of the table, with other fields that change. Raises IllegalMove with the possible moves."""
    move = _BY_CODE[code]
    if recommendation.state not in move.before:
        raise IllegalMove(refusal(recommendation, code))
    changes.setdefault("until_ts", None)
    return Moved(replace(recommendation, state=move.after, updated_ts=now_ts, **changes), code, why)


def refusal(recommendation: Recommendation, code: str) -> str:
    """Return why a move cannot be made, or a trial not begun, and the possible moves."""
    verb = "tried" if code == "trial" else _BY_CODE[code].verb
    what = f"{short_id(recommendation)} ({recommendation.change}) is {described(recommendation)} and cannot be {verb}"
    if names := commands(recommendation.state):
        return f"{what}; possible now: {', '.join(f'`pertoken {name} {short_id(recommendation)}`' for name in names)}"
    if recommendation.state in FINAL:
        return f"{what}: it has ended; if its rule proposes it again, that is a new recommendation"
    return f"{what}: there is no proposal in it"


def described(recommendation: Recommendation) -> str:
    """Return the state of a recommendation in words: `snoozed until 2026-12-01 09:00Z`."""
    until_ts = recommendation.until_ts
    return recommendation.state.label + ("" if until_ts is None else f" until {format_utc(until_ts)}")


SNOOZE_S = 14 * 86_400
DISMISS_S = 90 * 86_400
"""How long a dismissal lasts by default: prices and load of another quarter may decide otherwise."""
MAX_PUT_OFF_S = 366 * 86_400


def accept(
    recommendation: Recommendation, now_ts: int, why: str | None = None, variant: str | None = None
) -> Sequence[Moved]:
    """Accept a variant, the best one if none is named; its estimate is frozen. Raises BadInput."""
    chosen = None if recommendation.state is not State.OPEN else _variant(recommendation, variant)
    changes: MoveFields = {} if chosen is None else {"variant": chosen.key, "estimate": chosen, "unconfirmed": None}
    return (moved(recommendation, "accepted", why or "accepted", now_ts, **changes),)


def snooze(recommendation: Recommendation, now_ts: int, until_ts: int, why: str | None = None) -> Sequence[Moved]:
    """Put a recommendation off until a date. Raises BadInput."""
    end_ts = _until(until_ts, now_ts)
    return (moved(recommendation, "snoozed", why or "snoozed", now_ts, until_ts=end_ts, unconfirmed=None),)


def dismiss(recommendation: Recommendation, now_ts: int, until_ts: int, why: str | None = None) -> Sequence[Moved]:
    """Decline a recommendation until a date; its dollars count as declined. Raises BadInput."""
    end_ts = _until(until_ts, now_ts)
    return (moved(recommendation, "dismissed", why or "dismissed", now_ts, until_ts=end_ts, unconfirmed=None),)


def reopen(recommendation: Recommendation, now_ts: int, why: str | None = None) -> Sequence[Moved]:
    """End a snooze or dismissal, or withdraw an acceptance. Raises BadInput.

    An accepted recommendation keeps its estimate and ends; its proposal becomes an open recommendation, the next life.
    """
    why = why or "reopened"
    if recommendation.state is not State.ACCEPTED:
        return (moved(recommendation, "reopened", why, now_ts),)
    ended = moved(recommendation, "withdrawn", why, now_ts, reason="its acceptance was withdrawn")
    proposal = replace(recommendation, state=State.OPEN, variant=None, estimate=None, version=0)
    again = replace(next_life(recommendation, proposal), created_ts=now_ts, updated_ts=now_ts)
    return ended, Moved(again, "proposed", why)


def next_life(ended: Recommendation, proposal: Recommendation) -> Recommendation:
    """Return a proposal as the life that follows one that ended."""
    life = ended.life + 1
    return replace(proposal, recommendation_id=identity(*ended.subject, life), life=life)


def declare(
    recommendation: Recommendation, now_ts: int, why: str | None = None, variant: str | None = None
) -> Sequence[Moved]:
    """Declare a recommendation applied, accepted or not. Raises BadInput."""
    return (applied(recommendation, "declared", why or "declared applied", now_ts, variant),)


def roll_back(recommendation: Recommendation, now_ts: int, why: str | None = None) -> Sequence[Moved]:
    """Declare that an applied change was undone. Raises BadInput."""
    why = why or "declared undone"
    return (moved(recommendation, "undone", why, now_ts, reason=why),)


def applied(recommendation: Recommendation, code: str, why: str, now_ts: int, variant: str | None = None) -> Moved:
    """Move a recommendation to APPLIED; an estimate that was never accepted is frozen now. Raises BadInput."""
    estimate = recommendation.estimate
    if estimate is None and recommendation.variants:
        chosen = _variant(recommendation, variant)
        return moved(recommendation, code, why, now_ts, variant=chosen.key, estimate=chosen, unconfirmed=None)
    if variant is not None and estimate is not None and not estimate.key.startswith(variant):
        raise BadInput(
            f"{short_id(recommendation)}: {estimate.title} was accepted, not {variant!r}; "
            f"`pertoken reopen {short_id(recommendation)}` withdraws that"
        )
    return moved(recommendation, code, why, now_ts)


def undo_commands(recommendation: Recommendation) -> Variant:
    """Return the applied variant, with its commands to undo it. Raises IllegalMove if nothing was applied."""
    if recommendation.estimate is None or recommendation.state not in (*UNDOABLE, State.ROLLED_BACK):
        raise IllegalMove(refusal(recommendation, "undone"))
    return recommendation.estimate


def _variant(recommendation: Recommendation, key: str | None) -> Variant:
    """Return the variant with this prefix of its key, or the best. Raises BadInput if it is not exactly one."""
    if not recommendation.variants:
        raise BadInput(f"{short_id(recommendation)}: an older pertoken stored it; run `pertoken advise` first")
    if key is None:
        return recommendation.variants[0]
    matches = [variant for variant in recommendation.variants if key and variant.key.startswith(key.lower())]
    if len(matches) != 1:
        listed = "; ".join(f"{variant.key} ({variant.title})" for variant in recommendation.variants)
        raise BadInput(f"{short_id(recommendation)}: {key!r} names {len(matches) or 'none'} of its variants: {listed}")
    return matches[0]


def _until(until_ts: int, now_ts: int) -> int:
    if until_ts <= now_ts:
        raise BadInput("the end is in the past; give a later date, or a duration such as `--for 14d`")
    if until_ts > now_ts + MAX_PUT_OFF_S:
        raise BadInput(f"the end is more than {format_duration(MAX_PUT_OFF_S)} from now; give an earlier one")
    return until_ts
