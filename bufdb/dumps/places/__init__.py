"""Where bytes of dumps lie besides a disk: in memory, in archives, behind a URL."""
