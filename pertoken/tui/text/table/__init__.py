"""Filters of the rows of a table."""
