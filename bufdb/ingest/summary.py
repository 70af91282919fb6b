"""The result of an ingest."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Summary:
    """The result of an ingest."""

    run_names: list[str] = field(default_factory=list)
    """Runs that the dumps belong to."""
    module_count: int = 0
    """Modules stored, replaced ones included."""
    replaced_count: int = 0
    unchanged_count: int = 0
    skipped_count: int = 0
    """Modules, and directories and files that might hold some, that could not be read."""
    row_count: int = 0
    text_bytes: int = 0
    """Size of the files that were read."""
    seconds: float = 0.0
    problem_counts: dict[str, int] = field(default_factory=dict)
    """Number of diagnostics by severity."""
    removed_count: int = 0
    """Modules that the run had before, when it was to be replaced as a whole."""
    pruned_count: int = 0
    """Modules removed because their dumps are gone."""
    notes: list[str] = field(default_factory=list)
    """What people should know in addition to the summary."""
    refusals: list[str] = field(default_factory=list)
    """By function, what XLA said when it planned the memory and then gave up."""

    @property
    def exit_code(self) -> int:
        """0, or 4 if something could not be read or contradicts itself."""
        return 4 if any(self.problem_counts.get(s) for s in ("data_loss", "error")) else 0

    def line(self) -> str:
        """Return one line for people."""
        parts = [
            f"ingested {self.module_count} modules ({self.replaced_count} replaced)",
            f"{self.row_count} rows",
            f"{self.text_bytes / 1e6:.1f} MB in {self.seconds:.2f} s",
            f"unchanged {self.unchanged_count}",
            f"skipped {self.skipped_count}",
        ]
        if self.pruned_count:
            parts.append(f"removed {self.pruned_count} that are gone")
        problems = [f"{n} {severity}" for severity, n in sorted(self.problem_counts.items()) if n]
        if problems:
            where = "; 'bufdb query diagnostics' lists them" if self.exit_code else ""
            parts.append(f"diagnostics: {', '.join(problems)}{where}")
        return ", ".join(parts)
