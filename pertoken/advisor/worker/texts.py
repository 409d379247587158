"""Texts of rules and names of their types, as they can be stored."""


def type_name(value: object) -> str:
    """Return the name of a value's type without running code of a metaclass."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return storable(name)


def storable(text: str) -> str:
    """Return a text with NUL and lone surrogates escaped, so that both databases can store it."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
