"""Files that lie beside the buffer files of a module: flags, and the program as it came in."""
