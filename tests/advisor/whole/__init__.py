"""Whole advice runs over fleets made by hand."""
