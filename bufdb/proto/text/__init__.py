"""A serialised module as an HLO text: lines of instructions, their attributes, the header."""
