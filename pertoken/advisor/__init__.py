"""Advice: gather what there is, run rules in workers, price what they propose; `proof` stores recommendations.

Front door:

- `advisor.rules`: a package of its own: finding, loading, listing, switching off, checking and starting rules.
- `advisor.worker`: a package of its own: plugins and their rules in processes of their own.
- `advisor.advise`: `advise`, one run; `advice_of`, the same over what was gathered already.
- `advisor.plan`: a package of its own: all advice composed into one plan.
- `advisor.planning`: `plan_of_rules` and `plan_of_advice`, a plan from a store.
- `advisor.changes`, `advisor.checks`: rooms of a proposal, for `pricing` alone.
- `advisor.service`: `serve`, runs at a period, as a job of the scheduler.

The way of a proposal: a worker sends what a rule yields as its difference from the present; `candidate` makes the fleet
after it and checks what it changes (`possible`); `pricing` prices the difference and describes it (`title`, `commands`,
`nature`). Whatever goes wrong on this way is a row of that rule.
"""
