"""Exports for other tools: tables, flame graphs, traces, and a small database to send."""
