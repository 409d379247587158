"""How one host or service is shown over time, and how time is stepped through."""
