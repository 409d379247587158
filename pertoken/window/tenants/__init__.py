"""What gateways counted for tenants: `tokens`."""
