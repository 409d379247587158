"""The terminal screens. They read telemetry and show advice; they never write telemetry."""
