"""What people decide on recommendations: accept, put off, try, declare, undo."""
