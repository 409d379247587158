"""Inference engines: their metric names, the process behind an address, and a reader of one server.

Front door: `adapters` (all engines by kind, and their metric names), `adapters.adapter`, `adapters.metrics`, `locate`,
`reader`. The file of each engine is the business of `adapters`.
"""
