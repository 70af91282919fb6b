"""The heap of a process that reads, in huge pages where the system has them.

Its first group takes 70 MB, and page by page that is 17,000 faults, of small modules a fifth of the
group's time; each process pays them anew. In huge pages they are some thirty. NumPy asks for them
for arrays of 4 MB and more; what is smaller lies in the heap, for which the C library asks only
where a variable of the environment said so when the process began.

Not for a process of the caller's, whose settings these would change, too.
"""

from __future__ import annotations

import ctypes

HEAP_BYTES = 64 << 20
"""Of the heap, in huge pages; as much as a block of text takes."""
KEPT_BYTES = 96 << 20
"""What may be free at the heap's end before the system has it back: more than that piece of it."""
MAPPED_BYTES = 32 << 20
"""Size from which memory is mapped apart, and new at each time; the most that glibc takes, and what
it arrives at by itself."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
"""Of mallopt(3)."""
_MMAP_MAX = 65536
"""What glibc has set before."""
_MADV_HUGEPAGE = 14
"""Of madvise(2)."""
_PAGE_BYTES = 2 << 20


def prepare() -> None:
    """Let this process have its heap in huge pages; nothing where the C library is not glibc."""
    try:
        libc = ctypes.CDLL(None)
        mallopt, malloc, free, madvise = libc.mallopt, libc.malloc, libc.free, libc.madvise
    except (AttributeError, OSError, TypeError):
        return
    malloc.argtypes, malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    free.argtypes, free.restype = [ctypes.c_void_p], None
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
    mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
    mallopt(_M_MMAP_MAX, 0)  # the piece comes from the heap, and stays there when it is free again
    piece = malloc(HEAP_BYTES)
    mallopt(_M_MMAP_MAX, _MMAP_MAX)
    if piece is None:
        return
    start = -(-piece // _PAGE_BYTES) * _PAGE_BYTES
    madvise(start, piece + HEAP_BYTES - start, _MADV_HUGEPAGE)
    free(piece)
