"""What the modules of a batch say as a whole: sums, peaks, what values are for; and checks."""
