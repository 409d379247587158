"""The one writer of a database: ticks, roll-ups, what is to be shipped, and what is deleted when it is old.

Front door: `writer` (`Writer`), `rollup`, `retention`, `disk_full`, `quarantine` (buckets that cannot be computed),
`restored_state` (what an agent finds at its start), `outbox` (what is to be shipped).
"""
