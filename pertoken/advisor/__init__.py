"""Advice: gather evidence, run rules, price their proposals, keep the book of recommendations."""
