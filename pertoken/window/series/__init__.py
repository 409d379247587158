"""Evidence series of a window: points over its buckets, and how each is made."""
