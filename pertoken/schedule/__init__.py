"""Periodic work of the agent and the advisor: named jobs, one scheduler, and the state of each job.

Front door: `jobs` (jobs, and their states for other processes) and `scheduler` (imports APScheduler).
"""
