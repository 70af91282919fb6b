"""One page of HTML that needs nothing else: its data, its scripts and its policy."""
