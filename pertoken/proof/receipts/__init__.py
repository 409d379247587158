"""Receipts: what a change was promised to save, what it did, and how that was found, for people and programs."""
