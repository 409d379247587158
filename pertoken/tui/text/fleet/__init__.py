"""How the fleet is shown beside its tables of services and devices: hosts, groups, the chart of free height."""
