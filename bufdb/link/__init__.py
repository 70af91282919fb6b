"""The sections of a batch of modules become rows: names are looked up and become numbers."""
