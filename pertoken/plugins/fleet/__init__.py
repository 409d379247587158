"""Rules about the number of devices and replicas, and about routing requests to models."""
