"""Assumptions of an estimate: how much each moves the result, and the measurements to expect at another load."""
