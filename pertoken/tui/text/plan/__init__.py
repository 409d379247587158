"""The plan as text: headline, lines of the waterfall, and details of a step."""
