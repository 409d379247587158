"""The pieces of the screens, one in each file."""
