"""Programs for whoever works on pertoken. They are not installed with it."""
