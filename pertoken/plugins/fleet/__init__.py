"""Rules about how many devices and replicas are paid for, and which model answers."""
