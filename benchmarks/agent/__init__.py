"""What the agent costs and reads: rooms of `pertoken/agent`."""
