"""libtpu, so that it is found."""
