"""The database of `con` here."""

from kept import kept_for_advice

__all__ = ["kept_for_advice"]
