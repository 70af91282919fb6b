"""Paths in the checkout."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "data" / "demo"
PACKAGED = ROOT / "data" / "packaged" / "cpu"
"""A program whose lines are all in installed packages."""
GOLDEN = ROOT / "tests" / "golden"
PROFILES = {"cpu_b8": DEMO.parent / "profiles" / "cpu_b8.xplane.pb.gz"}
"""Times of instructions, by demo run."""
MEMORY = {"cpu_b8": [DEMO.parent / "profiles" / "cpu_b8.prof"]}
"""Arrays of the process, by demo run."""
