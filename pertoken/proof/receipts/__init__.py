"""Receipts: promise, result and method of a verified change, for people and programs."""
