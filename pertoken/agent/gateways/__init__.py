"""Gateways: what stands before engines and knows whom their tokens are for. `reader.GatewayWatch` is the front door."""
