"""How far the forecast is off, and how fast: rooms of `pertoken/forecast`."""
