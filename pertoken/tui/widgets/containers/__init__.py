"""Containers of widgets, one in each file."""
