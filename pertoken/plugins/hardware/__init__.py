"""Rules about the devices themselves: which ones, at which clocks and power."""
