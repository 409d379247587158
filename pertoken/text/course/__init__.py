"""Text of a course of hours: plots, notes and the replay."""
