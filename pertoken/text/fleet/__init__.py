"""Text of the fleet: tables, sheets and notes of hosts, devices and deployments."""
