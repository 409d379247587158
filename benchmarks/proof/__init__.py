"""Whether proof of savings holds what it promises, on histories with known effects: room of `pertoken/proof`."""
