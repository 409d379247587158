"""Rules about how an engine serves: its knobs, formats and health."""
