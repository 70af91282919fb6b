"""Where things of the checkout are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "data" / "demo"
GOLDEN = ROOT / "tests" / "golden"
