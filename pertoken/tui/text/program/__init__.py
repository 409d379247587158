"""Text for the whole program: help, names to go to, and choices of a person."""
