"""Periodic work of the agent and the advisor: named jobs, one scheduler, and how each job went.

Front door: `jobs` (what a job is, and its state for other processes) and `scheduler` (imports APScheduler).
"""
