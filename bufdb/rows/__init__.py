"""The sections of a batch of modules become rows: names, peaks, what values are for; checks."""
