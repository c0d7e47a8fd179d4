"""What a run found, as it is written to JSON and read back by the plot."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One way to ask in one case; ``recall`` is None where the question cannot be asked."""

    n: int
    case: str
    peer: str
    questions: int
    p50_ms: float
    p95_ms: float
    times_raw: float
    recall: float | None


@dataclass(frozen=True)
class Figure:
    """One number that something is aimed at; ``limit`` is None where it is only reported.

    ``floor`` means the value must be at least the limit, otherwise at most. Only a ratio is
    ``enforced``: seconds depend on the machine.
    """

    name: str
    n: int
    value: float
    unit: str = "x"
    limit: float | None = None
    floor: bool = False
    enforced: bool = False

    @property
    def met(self) -> bool | None:
        if self.limit is None:
            return None
        return self.value >= self.limit if self.floor else self.value <= self.limit

    @property
    def worse_than_half(self) -> bool:
        if self.limit is None or not self.enforced:
            return False
        return self.value < self.limit / 2 if self.floor else self.value > self.limit * 2


@dataclass
class Results:
    """``environment`` says what ran where; ``skipped`` why a peer or a part is missing."""

    environment: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)
    plans: dict[str, int] = field(default_factory=dict)
    """Answers compared with the oracle, by the plan that gave them."""

    def row(self, n: int, case: str, peer: str) -> Row | None:
        found = [r for r in self.rows if (r.n, r.case, r.peer) == (n, case, peer)]
        return found[0] if found else None

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Results:
        read = json.loads(path.read_text(encoding="utf-8"))
        read["rows"] = [Row(**row) for row in read["rows"]]
        read["figures"] = [Figure(**figure) for figure in read["figures"]]
        return cls(**read)


def environment() -> dict[str, str]:
    """What a reader must know to compare these numbers with others."""
    packages = ("chromadb", "llama-index-core", "langchain-core", "numpy")
    return {
        "date": time.strftime("%Y-%m-%d"), "cores": str(os.cpu_count()),
        "Python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}",
        **{package: version(package) for package in packages},
    }  # fmt: skip
