"""Rules about how many devices and replicas are paid for, where, and which model answers."""
