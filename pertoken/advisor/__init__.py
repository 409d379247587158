"""Advice: gather what there is, run rules in workers, price what they propose, store recommendations.

Front door:

- `advisor.rules`: `find_rules`, by entry point or from files, and `load_rules` for plugins that are trusted.
- `advisor.worker`: a package of its own: plugins and their rules in processes of their own.
- `advisor.advise`: `advise`, one run; `advice_of`, the same over what was gathered already.
- `advisor.recommendation`: `Recommendation` with its `Variant`s and `Refusal`s, as stored, listed and shown.
- `advisor.book`: `keep` and `standing`, recommendations in the database.

The way of a proposal: a worker sends what a rule yields as its difference from the present; `candidate` makes the fleet
after it and checks what it changes (`possible`); `pricing` prices the difference and describes it (`title`, `commands`,
`nature`). Whatever goes wrong on this way is a row of that rule.
"""
