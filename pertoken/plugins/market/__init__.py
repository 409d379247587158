"""Rules about the price of the same devices, and about paying per token instead."""
