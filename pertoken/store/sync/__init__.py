"""Shipping from a host to a fleet's server: read what is marked, write it there, compare both.

Front door: `read` (`Local`, batches of marked rows), `write` (into the server), `check` (the hourly comparison).
"""
