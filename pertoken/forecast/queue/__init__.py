"""Requests that wait and run: arrivals and lengths, the queue before the serving model, and the latency it leads to.

Front door: `latency` (TTFT and TPOT of a deployment, and the fewest replicas that hold objectives) and `load`.
"""
