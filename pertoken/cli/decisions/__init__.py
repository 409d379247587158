"""Commands for decisions on recommendations: accept, put off, try, declare, undo."""
