"""Advice: gather what there is, run rules on copies of it, price what they propose, store recommendations.

Front door:

- `advisor.rules`: a package of its own: finding, loading, listing, switching off, checking and starting rules.
- `advisor.advise`: `advise`, one run; `advice_of`, the same over what was gathered already.
- `advisor.recommendation`: `Recommendation` with its `Variant`s and `Refusal`s, as stored, listed and shown.
- `advisor.book`: `keep` and `standing`, recommendations in the database.
- `advisor.service`: `serve`, runs at a period, as a job of the scheduler.

The way of a proposal: `run` collects what a rule yields, under its deadline; `candidate` rebuilds and validates it
against the present (`values`); `pricing` prices the difference and describes it (`title`, `commands`, `nature`). All of
it runs in the rule's guard: an exception anywhere is that rule's row.
"""
