"""`pertoken plan` and how a plan is written."""
