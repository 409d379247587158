"""Levers of a plan."""
