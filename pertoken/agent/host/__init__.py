"""This host as the kernel describes it: processes, ports, containers, clocks, machine identity.

Front door: `containers`, `identity`, `proc`, `processes`, `published_ports`, `purge_clock`, `recorded_clock`.
"""
