"""Advice tables: people, the advisor and the screens write them; the agent never does."""

from sqlalchemy import MetaData, Table

from pertoken.store.schema.telemetry import NAMING, integer, text

metadata = MetaData(schema="advice", naming_convention=NAMING)

price = Table(
    "price",
    metadata,
    integer("price_id", key=True),
    text("selector", required=True),  # cpu | gpu | words of a device's name | a device's UUID
    integer("nano_usd_per_device_hour"),  # NULL: from then on the selector has no price
    integer("from_ts", required=True),  # in force from this minute on; 0: from the beginning
    integer("set_ts", required=True),
    text("set_by", required=True),
    text("note"),
    integer("seq", required=True),  # order of setting, without gaps: the later of two from the same minute counts
    integer("until_ts"),  # end, exclusive; NULL: until another is set
    text("entered"),  # JSON: amount, currency and rate as entered; NULL: dollars
)
discount = Table(
    "discount",
    metadata,
    integer("discount_id", key=True),
    text("provider", required=True),  # catalog name
    integer("millionths"),  # part of list prices that is taken off; NULL: from then on there is none
    integer("from_ts", required=True),  # in force from this minute on; 0: from the beginning
    integer("until_ts"),  # end, exclusive; NULL: until another is set
    integer("set_ts", required=True),
    text("set_by", required=True),
    text("note"),
    integer("seq", required=True),  # order of setting, without gaps
)
"""Negotiated discounts on the list prices of a provider; the newest row of a provider in force counts."""
offer = Table(
    "offer",
    metadata,
    integer("offer_id", key=True),
    text("provider", required=True),
    text("instance_type", required=True),
    text("accelerator", required=True),  # catalog name
    integer("n_devices", required=True),
    text("region", required=True),
    text("purchase", required=True),
    integer("nano_usd_per_device_hour", required=True),
    text("as_of", required=True),  # YYYY-MM-DD: when it was published at the earliest
    integer("from_ts"),  # first instant whose cost it may decide; NULL: the start of `as_of`
    text("source", required=True),
    text("confidence", required=True),
    text("note", required=True),
    integer("set_ts", required=True),
    text("set_by", required=True),
    integer("seq", required=True),  # order of import, without gaps
)
"""List prices that people imported; none is ever changed or deleted, so that past costs stay as they are."""
owned = Table(
    "owned",
    metadata,
    integer("owned_id", key=True),
    text("host", required=True),  # its name
    text("terms", required=True),  # JSON: capex_usd and what its owner states of the running cost
    integer("from_ts", required=True),  # in force from this minute on; 0: from the beginning
    integer("set_ts", required=True),
    text("set_by", required=True),
    integer("seq", required=True),  # order of setting, without gaps
)
"""What servers of one's own cost; the newest row of a host in force counts."""
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
probe = Table(
    "probe",
    metadata,
    integer("deployment_id", key=True),
    integer("started_ts", key=True),
    integer("ended_ts", required=True),
    text("endpoint", required=True),
    text("who", required=True),
    text("body", required=True),  # JSON: operating points, tokens sent, and why it stopped
)
"""Measurements by `pertoken probe`; they count for the epoch in which they were made. Rows are only added."""
recommendation = Table(
    "recommendation",
    metadata,
    integer("recommendation_id", key=True),
    text("rule_id", required=True),
    integer("deployment_id"),  # NULL for a lever wider than one deployment
    text("state", required=True),  # one of `pertoken.proof.recommendation.State`
    text("title", required=True),
    text("reason"),  # why blocked, refused or failed
    text("body", required=True),  # JSON: changes, commands, undo, estimate, evidence, assumptions
    integer("bankable_nano_usd_month"),
    integer("capacity_nano_usd_month"),
    integer("created_ts", required=True),
    integer("updated_ts", required=True),
    integer("version", required=True),  # optimistic: an update names the version it read
    # With rule_id its identity:
    text("target_kind"),  # service | deployment | host | fleet | load
    text("target_key"),  # name of a service, id of a deployment or host
    integer("life"),  # how often it was proposed again after it had come to an end, from 1
    integer("until_ts"),  # end of a snooze or dismissal; NULL in other states
    text("variant"),  # key of the variant that was accepted or applied
    text("estimate"),  # JSON of that variant as it was then; never changed once it is set
)
refusal = Table(
    "refusal",
    metadata,
    integer("recommendation_id", key=True),
    text("code", key=True),  # lower-case words joined by hyphens
    text("reason", required=True),
    integer("since_ts", required=True),
)
"""Why a rule does not propose something for a target; it may stand beside an open recommendation."""
transition = Table(
    "transition",
    metadata,
    integer("recommendation_id", key=True),
    integer("version", key=True),  # of the recommendation after the move
    integer("ts", required=True),
    text("from_state"),
    text("to_state", required=True),
    text("code", required=True),  # reason code: lower-case words joined by hyphens
    text("who", required=True),
    text("why", required=True),
)
"""Every change of state of a recommendation; rows are only added."""
verdict = Table(
    "verdict",
    metadata,
    integer("deployment_id", key=True),
    integer("epoch_id", key=True),  # the epoch that began with the change
    integer("previous_epoch_id", required=True),
    integer("changed_ts", required=True),  # start of the epoch
    integer("recommendation_id"),  # NULL: nobody recommended the change
    text("result", required=True),  # PENDING | CHEAPER | DEARER | NO_EFFECT | INCONCLUSIVE
    # Change of the cost per token at like load: after / before - 1, in millionths
    integer("effect_low_1e6"),
    integer("effect_likely_1e6"),
    integer("effect_high_1e6"),
    text("method"),
    text("version_before"),  # of the engine
    text("version_after"),
    text("body", required=True),  # JSON: what changed, and why a result is what it is
    integer("created_ts", required=True),
    integer("judged_ts"),  # NULL while it is pending
    integer("version", required=True),  # optimistic: an update names the version it read
)
"""What each change of a deployment's configuration did to its cost, recommended or not."""
receipt = Table(
    "receipt",
    metadata,
    integer("receipt_id", key=True),
    # Of a recommendation, or of a verdict:
    integer("recommendation_id"),
    integer("deployment_id"),
    integer("epoch_id"),
    text("kind", required=True),
    text("body", required=True),  # JSON: the figures, with the hourly inputs they were computed from
    text("hash", required=True),  # of the body
    integer("created_ts", required=True),
)
"""Proof of what a change saved; rows are only added."""
trial = Table(
    "trial",
    metadata,
    integer("trial_id", key=True),
    integer("recommendation_id", required=True),
    text("design", required=True),  # REPLICAS | SWITCHBACK
    text("status", required=True),  # RUNNING | DONE | QUALITY_FAILED | STOPPED
    integer("started_ts", required=True),
    integer("ended_ts"),  # NULL while it runs
    text("body", required=True),  # JSON: its arms, what changes on the canary, the quality check, the result
    integer("version", required=True),  # optimistic: an update names the version it read
)
"""Trials of recommendations before they are applied everywhere."""
alert = Table(
    "alert",
    metadata,
    text("name", required=True, key=True),
    text("target", required=True, key=True),  # fleet, or kind=name
    text("state", required=True),  # PENDING | FIRING | CLEARING
    integer("since_ts", required=True),  # when the state began
    integer("seen_ts", required=True),  # when its figure was last known
    text("body", required=True),  # JSON: the figure, its value and limit, when it fired
)
"""Alerts that hold, or held a moment ago; one that does not hold has no row."""
alert_delivery = Table(
    "alert_delivery",
    metadata,
    integer("delivery_id", key=True),  # of alert, target, event and time, so that one event is delivered once
    text("name", required=True),
    text("destination", required=True),  # log, mail, or a hash of the URL, which may be secret
    text("body", required=True),  # JSON that is sent
    integer("created_ts", required=True),
    integer("next_ts"),  # of the next try; NULL: it was delivered, or given up
    integer("tries", required=True),
    text("error"),  # of the last try; NULL: it was delivered, or not tried
)
"""What is sent of alerts, and how often it was tried."""
configuration = Table(
    "configuration",
    metadata,
    integer("configuration_id", key=True),  # from 1, without gaps: the last one counts
    text("source", required=True),  # settings file, and environment variables that change advice
    text("digest", required=True),  # of the settings that change advice
    integer("set_ts", required=True),
    text("set_by", required=True),
)
"""Configurations that the stored advice belonged to; rows are only added."""
