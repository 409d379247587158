"""Parts of the fleet page: hosts, groups, first run, missing prices, and the chart."""
