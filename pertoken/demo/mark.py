"""Recognition of demos: all hosts of a demo have a machine id that marks them as generated."""

from pertoken.store.schema.shared import DEMO_MACHINE


def machine_id(host: str) -> str:
    """Return the machine id of a generated host."""
    return DEMO_MACHINE + host


def is_demo(machine_id: str | None) -> bool:
    """Return whether a host's machine id is that of a generated host."""
    return (machine_id or "").startswith(DEMO_MACHINE)
