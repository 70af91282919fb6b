"""Serialized HLO modules with their buffer assignment, as the sections of a text dump."""
