"""The report: one page of HTML that needs nothing else, its data, scripts and policy."""
