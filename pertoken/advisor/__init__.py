"""Advice: read a window, run rules in workers, price their proposals; `proof` stores the recommendations.

Front door:

- `advisor.rules`: package that finds, loads, lists, disables, checks and scaffolds rules.
- `advisor.worker`: package that runs plugins and their rules in separate, restricted processes.
- `advisor.run`: `advise`, one run; `advice_of`, the same over a gathered `Present`; `keep_advice` stores its result.
- `advisor.plan`: package that composes all advice into one plan.
- `advisor.planning`: `plan_of_rules` and `plan_of_advice`, a plan from a store.
- `advisor.proposals`: proposals as JSON between processes, and as valid candidates.
- `advisor.changes`, `advisor.checks`: description and checks of a candidate, used by `pricing` only.
- `advisor.service`: `serve`, periodic runs as a job of the scheduler.

The path of a proposal: a worker sends each value that a rule yields as a difference from the present fleet. `candidate`
builds the changed fleet and validates the change. `pricing` prices the difference and describes it with
`changes.title` and `changes.commands`. An error on this path becomes a FAILED row of that rule. `leaving` keeps the
best change of each service that leaves a shared host: `run` prices all of a host together.
"""
