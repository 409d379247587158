"""Discovery, loading, listing and checking of rules.

Front door:

- `rules.discovery`: `find_rules`, the installed plugins and whether each may be loaded. It runs no code of a plugin.
- `rules.load`: `load` runs a plugin's module; `source_of` makes a `Source` that a worker loads.
- `rules.discovery`: `disabled`, `enable` and `disable`, for rules that a person switched off.
- `rules.listing`: one entry for each rule, and the page of one; plugins are loaded in workers.
- `rules.check`: runs the conformity suite and the regimes on the rules of a file.
- `rules.scaffold`: the files of a new rule.
"""
