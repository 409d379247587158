"""How fast and large the store is: rooms of `pertoken/store`."""
