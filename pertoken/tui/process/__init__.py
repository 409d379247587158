"""What screens take of the process they run in: its CPU (`pace`) and its terminal (`terminal`)."""
