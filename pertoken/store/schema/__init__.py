"""Tables of all groups, the values that become their rows, and the ids of those rows.

Front door: every module. `telemetry`, `advice` and `fleet` are the tables of the three groups; `rollup_tables` those of
roll-ups; `rows` the values that the agent passes to the store, `samples` their tables; `words` stored in columns;
`busy_columns` expressions over columns; `ids` deterministic 64-bit ids.
"""
