"""What each kind of change saves, one in each file; `services` and `estimate` pick by the difference of two fleets."""
