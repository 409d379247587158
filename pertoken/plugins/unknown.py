"""What a refusal says beside a value that nobody could see: an unknown has no figure, but there is a way to know it."""

DOCTOR = "`pertoken doctor` on its host shows what could be seen of its engine"
CATALOG = "neither its engine nor the catalog tells it"
