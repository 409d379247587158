"""Proof in words: trials, verdicts and track records."""
