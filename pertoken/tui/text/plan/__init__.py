"""The plan in words: its headline, its lines as a waterfall, and one step in full."""
