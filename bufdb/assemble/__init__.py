"""The sections of a batch of modules become rows: names looked up, sums checked."""
