"""SQL tables and everything that reads or writes them, in rooms.

- `schema`: tables, the values that become their rows, ids.
- `connect`: where a database is, and opening it.
- `query`: questions, one statement each, and the fast reader of their rows.
- `integrity`: checksums, the high-water mark, verification.
- `write`: the one writer, roll-ups, retention, what is to be shipped.
- `sync`: shipping to a fleet's server. `central`: that server's logins, rights and partitions. `export`: files.

Beside them: `check` (what `pertoken db check` reports) and `repository` (prices, read and set).
"""
