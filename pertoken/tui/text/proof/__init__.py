"""Trials and verdicts as text."""
