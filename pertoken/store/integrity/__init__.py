"""Checksums of everything stored: counted with each write, verified against the rows, quarantined when damaged.

Front door: `checksums` (counted on the writing connection), `verify` (one pass over everything), `batches` and
`high_water_mark` (what was acknowledged), `schema_check` (the file before it is opened), `damaged` (quarantine of
damaged files).
"""
