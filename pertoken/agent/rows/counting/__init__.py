"""Counters of engines: what they rose by, in which life of their process, and from where they fell.

Front door: `counters` (deltas of a page), `life_ids` (ids of processes and boots), `stored_peaks` (kept over restarts).
"""
