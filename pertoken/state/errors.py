"""Errors in an edit of a state."""


class InvalidEdit(ValueError):
    """An edit names something that does not exist, or a value outside its type or range."""


class UnknownKnob(InvalidEdit):
    """A name that is not a knob of a deployment."""
