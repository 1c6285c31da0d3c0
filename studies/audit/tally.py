"""What an audit counts."""

from __future__ import annotations

from dataclasses import dataclass, field

FIGURES = ("tries", "refused", "harmless", "lost", "silent", "tracebacks")
"""What is counted, in the order of the table."""


@dataclass
class Tally:
    """Tries of one kind; `lost` is work or somebody's file that is gone, `silent` a wrong answer
    without a word, `tracebacks` what ended otherwise than in one line. `faults` says which."""

    what: str
    tries: int = 0
    lost: int = 0
    silent: int = 0
    tracebacks: int = 0
    refused: int = 0
    harmless: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.silent or self.tracebacks)

    def fault(self, kind: str, detail: str) -> None:
        """Count one fault and keep what it was."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.faults.append(f"{self.what}: {kind}: {detail}")

    def add(self, other: Tally) -> None:
        """Count another's tries as well."""
        for name in FIGURES:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults += other.faults
