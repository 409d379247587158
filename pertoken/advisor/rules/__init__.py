"""Rules from the places they are kept in to values that an advice run can use.

Front door:

- `rules.discovery`: `find_rules`, where rules are and which of them may be loaded. It runs no code of a plugin.
- `rules.load`: `load`, which runs a plugin's module, and `source_of`, which has a worker do that.
- `rules.switches`: `disabled`, `enable` and `disable`, the rules that a person switched off.
- `rules.listing`: one entry for each rule, and the page of one; plugins are loaded in workers.
- `rules.check`: the conformity suite and the regimes over the rules of a file.
- `rules.scaffold`: the files of a new rule.
"""
