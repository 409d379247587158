"""`pertoken plan`, and a plan as text."""
