"""Rules about an engine: its knobs, formats and health."""
