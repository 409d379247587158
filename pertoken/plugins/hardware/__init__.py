"""Rules about devices: the accelerator, its clocks and its power."""
