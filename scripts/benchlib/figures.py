"""A figure, what it is held against, and the table of them. Knows nothing of how anything is measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Unit = Literal["s", "per_s", "bytes", ""]


@dataclass(frozen=True)
class Against:
    """The same thing measured on another program in the same run. `goal` bounds `ratio`; `None` shows it only."""

    name: str
    value: float
    ratio: float
    goal: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.ratio >= self.goal if self.at_least else self.ratio <= self.goal


@dataclass
class Figure:
    """One measured value of toolsd. `goal` is its upper bound in the same unit, where the goal is no ratio."""

    name: str
    value: float
    unit: Unit
    goal: float | None = None
    against: list[Against] = field(default_factory=list)

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.value <= self.goal

    def beside(
        self,
        name: str,
        value: float,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        own: float | None = None,
    ) -> Figure:
        """Hold the figure against another program's value of the same thing.

        `own` is toolsd's value to compare, where it is not the figure itself (a peer that cannot take the whole load).
        """
        goal = at_most if at_most is not None else at_least
        ratio = (self.value if own is None else own) / value
        self.against.append(Against(name, value, ratio, goal, at_least is not None))
        return self

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "goal": self.goal,
            "met": self.met,
            "against": [
                {
                    "name": other.name,
                    "value": other.value,
                    "ratio": other.ratio,
                    "goal": other.goal,
                    "at_least": other.at_least,
                    "met": other.met,
                }
                for other in self.against
            ],
        }


def missed(figures: Iterable[Figure]) -> int:
    """How many goals were missed."""
    return sum([figure.met, *(other.met for other in figure.against)].count(False) for figure in figures)


def readable(value: float, unit: Unit) -> str:
    """The value with three significant digits and a unit a person reads."""
    if unit == "s":
        for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if value >= scale:
                return f"{value / scale:.3g} {name}"
        return f"{value * 1e9:.3g} ns"
    if unit == "bytes":
        return f"{value / (1 << 20):.3g} MiB"
    return f"{value:,.0f} /s" if unit == "per_s" else f"{value:.3g}"


def _row(figure: Figure, other: Against) -> tuple[str, ...]:
    goal = "" if other.goal is None else f"{'≥' if other.at_least else '≤'} {_times(other.goal)}"
    return "", "", other.name, readable(other.value, figure.unit), _times(other.ratio), goal, _verdict(other.met)


def _times(ratio: float) -> str:
    return f"{ratio:.2f} ×" if ratio >= 0.1 else f"1/{1 / ratio:.0f}"


def _verdict(met: bool | None) -> str:
    return "" if met is None else "met" if met else "missed"


def table(figures: Iterable[Figure]) -> str:
    """The figures as a Markdown table, aligned so that it also reads well in a terminal."""
    rows: list[tuple[str, ...]] = [("figure", "toolsd", "beside", "", "ratio", "goal", "")]
    for figure in figures:
        goal = "" if figure.goal is None else f"≤ {readable(figure.goal, figure.unit)}"
        own = (figure.name, readable(figure.value, figure.unit), "", "", "", goal, _verdict(figure.met))
        others = [_row(figure, other) for other in figure.against]
        if others and figure.goal is None:
            rows += [(*own[:2], *others[0][2:]), *others[1:]]
        else:
            rows += [own, *others]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rows.insert(1, tuple("-" * width for width in widths))
    lines = (" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"| {line} |" for line in lines)
