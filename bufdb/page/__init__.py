"""The report: one self-contained page of HTML, with its data, scripts and policy."""
