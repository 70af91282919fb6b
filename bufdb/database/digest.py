"""BLAKE2 without OpenSSL, which `import hashlib` loads for its other functions: 3 ms of CPU."""

try:
    from _blake2 import blake2b
except ImportError:  # no part of Python's documented library
    from hashlib import blake2b

__all__ = ["blake2b"]
