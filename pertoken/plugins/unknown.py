"""Hints in refusals on how to find a value that is unknown."""

DOCTOR = "`pertoken doctor` on its host shows what was read from its engine"
CATALOG = "neither its engine nor the catalog has it"
