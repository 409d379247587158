"""Text of a plan: its head, its lines and a step."""
