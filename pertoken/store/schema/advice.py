"""Advice tables: people, the advisor and the screens write them; the agent never does."""

from typing import NamedTuple

from sqlalchemy import MetaData, Table

from pertoken.store.schema.telemetry import NAMING, integer, row_columns, text


class PriceRow(NamedTuple):
    """A price as it was set."""

    price_id: int
    selector: str  # cpu | gpu | words of a device's name | a device's UUID
    nano_usd_per_device_hour: int | None  # NULL: from then on the selector has no price
    from_ts: int  # in force from this minute on; 0: from the beginning
    set_ts: int
    set_by: str
    note: str | None
    seq: int  # order of setting, without gaps: the later of two from the same minute counts
    until_ts: int | None  # end, exclusive; NULL: until another is set
    entered: str | None  # JSON: amount, currency and rate as entered; NULL: dollars


class DiscountRow(NamedTuple):
    """A negotiated discount on the list prices of a provider; the newest row of a provider in force counts."""

    discount_id: int
    provider: str  # catalog name
    millionths: int | None  # part of list prices that is taken off; NULL: from then on there is none
    from_ts: int  # in force from this minute on; 0: from the beginning
    until_ts: int | None  # end, exclusive; NULL: until another is set
    set_ts: int
    set_by: str
    note: str | None
    seq: int  # order of setting, without gaps


class OfferRow(NamedTuple):
    """A list price that people imported; none is ever changed or deleted, so that past costs stay as they are."""

    offer_id: int
    provider: str
    instance_type: str
    accelerator: str  # catalog name
    n_devices: int
    region: str
    purchase: str
    nano_usd_per_device_hour: int
    as_of: str  # YYYY-MM-DD: when it was published at the earliest
    from_ts: int | None  # first instant at which it may decide the cost; NULL: the start of `as_of`
    source: str
    confidence: str
    note: str
    set_ts: int
    set_by: str
    seq: int  # order of import, without gaps


class OwnedRow(NamedTuple):
    """The cost of an owned server as it was set; the newest row of a host in force counts."""

    owned_id: int
    host: str  # its name
    terms: str  # JSON: capex_usd and what its owner states of the running cost
    from_ts: int  # in force from this minute on; 0: from the beginning
    set_ts: int
    set_by: str
    seq: int  # order of setting, without gaps


class ProbeRow(NamedTuple):
    """A measurement by `pertoken probe`; it counts for the epoch in which it was made. Rows are only added."""

    deployment_id: int
    started_ts: int
    ended_ts: int
    endpoint: str
    who: str
    body: str  # JSON: operating points, tokens sent, and why it stopped


class RecommendationRow(NamedTuple):
    """A recommendation as it stands."""

    recommendation_id: int
    rule_id: str
    deployment_id: int | None  # NULL for a lever wider than one deployment
    state: str  # one of `pertoken.proof.recommendation.State`
    title: str
    reason: str | None  # why blocked, refused or failed
    body: str  # JSON: changes, commands, undo, estimate, evidence, assumptions
    bankable_nano_usd_month: int | None
    capacity_nano_usd_month: int | None
    created_ts: int
    updated_ts: int
    version: int  # optimistic: an update names the version it read
    # With rule_id its identity:
    target_kind: str | None  # service | deployment | host | fleet | load
    target_key: str | None  # name of a service, id of a deployment or host
    life: int | None  # how often it was proposed again after it had come to an end, from 1
    until_ts: int | None  # end of a snooze or dismissal; NULL in other states
    variant: str | None  # key of the variant that was accepted or applied
    estimate: str | None  # JSON of that variant as it was then; never changed once it is set


class RefusalRow(NamedTuple):
    """A reason why a rule does not propose something for a target; it may stand beside an open recommendation."""

    recommendation_id: int
    code: str  # lower-case words joined by hyphens
    reason: str
    since_ts: int


class TransitionRow(NamedTuple):
    """A change of state of a recommendation; rows are only added."""

    recommendation_id: int
    version: int  # of the recommendation after the move
    ts: int
    from_state: str | None
    to_state: str
    code: str  # reason code: lower-case words joined by hyphens
    who: str
    why: str


class VerdictRow(NamedTuple):
    """The effect of a change of a deployment's configuration on its cost, recommended or not."""

    deployment_id: int
    epoch_id: int  # the epoch that began with the change
    previous_epoch_id: int
    changed_ts: int  # start of the epoch
    recommendation_id: int | None  # NULL: nobody recommended the change
    result: str  # PENDING | CHEAPER | DEARER | NO_EFFECT | INCONCLUSIVE
    # Change of the cost per token at like load: after / before - 1, in millionths
    effect_low_1e6: int | None
    effect_likely_1e6: int | None
    effect_high_1e6: int | None
    method: str | None
    version_before: str | None  # of the engine
    version_after: str | None
    body: str  # JSON: what changed, and why a result is what it is
    created_ts: int
    judged_ts: int | None  # NULL while it is pending
    version: int  # optimistic: an update names the version it read


class ReceiptRow(NamedTuple):
    """A proof of what a change saved; rows are only added."""

    receipt_id: int
    # Of a recommendation, or of a verdict:
    recommendation_id: int | None
    deployment_id: int | None
    epoch_id: int | None
    kind: str
    body: str  # JSON: the figures, with the hourly inputs they were computed from
    hash: str  # of the body
    created_ts: int


class TrialRow(NamedTuple):
    """A trial of a recommendation before it is applied everywhere."""

    trial_id: int
    recommendation_id: int
    design: str  # REPLICAS | SWITCHBACK
    status: str  # RUNNING | DONE | QUALITY_FAILED | STOPPED
    started_ts: int
    ended_ts: int | None  # NULL while it runs
    body: str  # JSON: its arms, what changes on the canary, the quality check, the result
    version: int  # optimistic: an update names the version it read


class AlertRow(NamedTuple):
    """An alert that holds, or held a moment ago; one that does not hold has no row."""

    name: str
    target: str  # fleet, or kind=name
    state: str  # PENDING | FIRING | CLEARING
    since_ts: int  # when the state began
    seen_ts: int  # when its figure was last known
    body: str  # JSON: the figure, its value and limit, when it fired


class AlertDeliveryRow(NamedTuple):
    """A message to be sent of an alert, and how often that was tried."""

    delivery_id: int  # of alert, target, event and time, so that one event is delivered once
    name: str
    destination: str  # log, mail, or a hash of the URL, which may be secret
    body: str  # JSON that is sent
    created_ts: int
    next_ts: int | None  # of the next try; NULL: it was delivered, or given up
    tries: int
    error: str | None  # of the last try; NULL: it was delivered, or not tried


class ConfigurationRow(NamedTuple):
    """A configuration that the stored advice belonged to; rows are only added."""

    configuration_id: int  # from 1, without gaps: the last one counts
    source: str  # settings file, and environment variables that change advice
    digest: str  # of the settings that change advice
    set_ts: int
    set_by: str


metadata = MetaData(schema="advice", naming_convention=NAMING)
price = Table("price", metadata, *row_columns(PriceRow, "price_id"))
discount = Table("discount", metadata, *row_columns(DiscountRow, "discount_id"))
offer = Table("offer", metadata, *row_columns(OfferRow, "offer_id"))
owned = Table("owned", metadata, *row_columns(OwnedRow, "owned_id"))
probe = Table("probe", metadata, *row_columns(ProbeRow, "deployment_id", "started_ts"))
recommendation = Table("recommendation", metadata, *row_columns(RecommendationRow, "recommendation_id"))
refusal = Table("refusal", metadata, *row_columns(RefusalRow, "recommendation_id", "code"))
transition = Table("transition", metadata, *row_columns(TransitionRow, "recommendation_id", "version"))
verdict = Table("verdict", metadata, *row_columns(VerdictRow, "deployment_id", "epoch_id"))
receipt = Table("receipt", metadata, *row_columns(ReceiptRow, "receipt_id"))
trial = Table("trial", metadata, *row_columns(TrialRow, "trial_id"))
alert = Table("alert", metadata, *row_columns(AlertRow, "name", "target"))
alert_delivery = Table("alert_delivery", metadata, *row_columns(AlertDeliveryRow, "delivery_id"))
configuration = Table("configuration", metadata, *row_columns(ConfigurationRow, "configuration_id"))
budget_alert = Table(
    "budget_alert",
    metadata,
    text("month", key=True),  # YYYY-MM, UTC
    text("kind", key=True),  # spent | expected
    integer("threshold_1e4", key=True),  # share of the budget
    integer("ts", required=True),  # when it was first seen to be reached
    integer("spent_nano_usd", required=True),  # of the month until then
    integer("expected_nano_usd"),  # likely spend of the whole month; NULL: not known
    integer("budget_nano_usd", required=True),  # of the month
)
"""Thresholds of a budget that the spend of a month reached; each is noted once a month."""
