"""What a terminal shows of a module: pictures in characters."""
