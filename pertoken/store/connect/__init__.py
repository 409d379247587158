"""Connections: where a database is, opening it for reading or writing, and what each database alone needs.

Front door: `open` (engines, `Store`, transactions), `location` (`StoreLocation`), `server` (URLs of servers), `create`
(tables of a new file), `sqlite` and `postgres` (their own commands), `bulk` (many rows over the driver), `trouble`.
"""
