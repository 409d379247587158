"""Validation of a proposal: its fleet, whether edits can produce it, and whether settings permit it.

Front door: `candidate`, `possible`, `permitted`, `objectives`.
"""
