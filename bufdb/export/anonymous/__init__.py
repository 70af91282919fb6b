"""Texts without the words of a user: which words stay, and what takes the place of others."""
