"""Text of the program itself: keys, help, choices."""
