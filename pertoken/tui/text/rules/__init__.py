"""Rules in words: a line for each, and one in full."""
