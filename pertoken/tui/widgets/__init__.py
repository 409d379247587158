"""Widgets of the screens, one in each file."""
