"""One plan out of all advice: which changes, in which order, and what they save together.

Front door:

- `advisor.plan.plan`: `Plan` with its `Step`s and what was `LeftOut`; `Limits`, what a person asks of it.
- `advisor.plan.compose`: `compose(gathered, recommendations, limits)`.
- `advisor.plan.export`: the plan as JSON, Markdown, a shell script, or patches of Kubernetes objects.
- `advisor.plan.what_if`: another load, price or objective, as an edit of what was gathered.

Inside: `levers` makes what may be part of a plan from recommendations; `reapply` applies one to a fleet that others
have changed; `conflicts` states which exclude each other; `groups` splits them into those that act on each other's
money; `states` prices combinations through one forecast; `search` looks for the best one, and `choose` for that of all
groups; `order` puts steps in the order a person wants; `steps` describes each step.
"""
