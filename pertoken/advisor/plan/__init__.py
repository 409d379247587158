"""Plan: the best subset of all advice, in order, with the savings of its steps together.

Front door:

- `advisor.plan.plan`: `Plan` with its `Step`s and `LeftOut` proposals; `Limits`, the wishes of a person.
- `advisor.plan.compose`: `compose(gathered, recommendations, limits)`.
- `advisor.plan.what_if`: another load, price or objective, as an edit of a gathered `Present`.

Inside: `levers` converts recommendations to levers, applies a lever after others, lists the pairs that exclude each
other, and splits levers into groups with independent savings. `states` prices combinations through one forecast;
`choose` finds the best combination of a group, and of all groups. `compose` orders and describes the steps.
"""
