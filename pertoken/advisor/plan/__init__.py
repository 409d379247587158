"""Plan: the best subset of all advice, in order, with the savings of its steps together.

Front door:

- `advisor.plan.plan`: `Plan` with its `Step`s and `LeftOut` proposals; `Limits`, the wishes of a person.
- `advisor.plan.compose`: `compose(gathered, recommendations, limits)`.
- `text.export`: a plan's commands as a shell script.
- `advisor.plan.what_if`: another load, price or objective, as an edit of a gathered `Present`.

Inside: `levers` converts recommendations to levers; `reapply` applies a lever to a fleet that other levers have
changed; `conflicts` lists the pairs that exclude each other; `groups` splits levers into groups with independent
savings; `states` prices combinations through one forecast; `search` finds the best combination of a group, and
`choose` that of all groups; `order` applies the order that a person wants; `steps` describes each step.
"""
