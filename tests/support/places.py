"""Paths in the checkout."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "data" / "demo"
PACKAGED = ROOT / "data" / "packaged" / "cpu"
"""A program whose lines are all in installed packages."""
GOLDEN = ROOT / "tests" / "golden"
LABELS = {
    "cpu_b8": {"batch": "8"},
    "cpu_b16": {"batch": "16"},
    "cpu_b8_remat": {"batch": "8", "remat": "full"},
    "cpu_b8_old": {"batch": "8", "jaxlib": "0.4.30"},
    "gpu_b8": {"batch": "8"},
    "tpu_b8": {"batch": "8"},
}
"""Labels of the demo runs."""
PROFILES = {"cpu_b8": DEMO.parent / "profiles" / "cpu_b8.xplane.pb.gz"}
"""Times of instructions, by demo run."""
MEMORY = {"cpu_b8": sorted((DEMO.parent / "profiles").glob("cpu_b8*.prof"))}
"""Arrays of the process, by demo run."""
