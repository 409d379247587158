"""Everything that is read from outside, damaged and at random: read, or refused by the documented error alone."""
