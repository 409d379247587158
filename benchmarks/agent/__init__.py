"""Benchmarks of `pertoken/agent`: its cost on a host, and its readings."""
