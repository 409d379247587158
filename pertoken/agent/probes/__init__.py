"""Probes: one file for each kind of hardware."""
