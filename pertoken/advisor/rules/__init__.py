"""Discovery, loading, listing and checking of rules.

Front door:

- `rules.discovery`: `find_rules`, the installed plugins and whether each may be loaded, without running their code;
  `load` runs a plugin's module; `source_of` and `sources_of` make what a worker loads; `disabled`, `enable`, `disable`.
- `rules.listing`: one entry for each rule, and the page of one, loaded in workers; `check` runs the conformity suite
  and the regimes on the rules of a file; `new_rule` writes the files of a new rule.
"""
