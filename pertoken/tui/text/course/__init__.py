"""History of one host or service as text and plots, and the timeline of a replay."""
