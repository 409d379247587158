"""Rules about what is paid for the same devices, and about paying for tokens instead."""
