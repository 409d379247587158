"""Inference engines: one file for each maps its metric names onto our words."""
