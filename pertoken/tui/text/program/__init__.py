"""What belongs to the whole program and to no screen: help, names to go to, and choices of the person."""
