"""What was asked, answered and run, held against each other: the promises of a turn, from outside.

Pure: takes the lines of the witnesses and of the drivers, gives the list of what is wrong.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

# How long work of a turn that failed may go on in other sources: their cancel grace, their kill, and a slow machine.
_AFTERMATH = 10.0


class Ran(NamedTuple):
    """One line of a witness."""

    kind: str
    token: str
    pid: int
    at: float


class Verdict:
    """`wrong` is empty when every promise was kept; `outcomes` counts how turns ended."""

    def __init__(self, home: Path) -> None:
        self.wrong: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.turns = self.calls = self.ran = 0
        self._began: dict[str, dict[str, Any]] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        runs: dict[str, list[Ran]] = defaultdict(list)
        for file in sorted((home / "witness").iterdir()):
            for line in whole_lines(file):
                kind, token, pid, at = line.split(" ")
                runs[token].append(Ran(kind, token, int(pid), float(at)))
        self.ran = len(runs)
        self._runs = runs
        for file in sorted((home / "answers").iterdir()):
            self._read(json.loads(line) for line in whole_lines(file))
        for turn, began in self._began.items():
            self._judge(turn, began, self._ended.get(turn))
        asked = {token for began in self._began.values() for token, _ in began["calls"]}
        self.wrong += [f"{token} ran and nobody asked for it" for token in runs.keys() - asked]

    def _read(self, lines: Iterable[dict[str, Any]]) -> None:
        for line in lines:
            if "begin" in line:
                self._began[line["begin"]] = line
            elif "end" in line:
                if line["end"] in self._ended:
                    self.wrong.append(f"turn {line['end']} ended twice")
                self._ended[line["end"]] = line
            else:
                self.wrong.append(line["wrong"])

    def _judge(self, turn: str, began: dict[str, Any], ended: dict[str, Any] | None) -> None:
        self.turns += 1
        self.calls += len(began["calls"])
        for token, tool in began["calls"]:
            starts = self._starts(token)
            if starts > (2 if tool == "twice_work" else 1):
                self.wrong.append(f"{token} ({tool}) ran {starts} times")
        if ended is None:  # its client was killed, or did not get an answer (and has said so)
            self.outcomes["client killed"] += 1
            return
        self.outcomes[ended["how"]] += 1
        if ended["how"] == "ok":
            self._judge_results(turn, began, ended)
        elif "ledger" in ended:
            self._judge_ledger(turn, began, ended)
        self._judge_order(turn, began)
        self._judge_silence(turn, began, ended)

    def _judge_results(self, turn: str, began: dict[str, Any], ended: dict[str, Any]) -> None:
        if len(ended["slots"]) != len(began["calls"]):
            self.wrong.append(f"turn {turn}: {len(began['calls'])} calls, {len(ended['slots'])} results")
            return
        for index, ((token, tool), (id_, ok, said)) in enumerate(zip(began["calls"], ended["slots"], strict=True)):
            if id_ != f"c{index}" or (ok and said != token):
                self.wrong.append(f"turn {turn}: call {index} has the result of another one ({id_}, {said})")
            if ok and (self._starts(token), self._ends(token) > 0) not in ((1, True), (2, True)):
                self.wrong.append(f"turn {turn}: {token} ({tool}) has a result and did not run")
            expected = {"steady_error": "tool_error", "no_such_tool": "unknown_tool"}.get(tool)
            if expected is not None and (ok or said != expected):
                self.wrong.append(f"turn {turn}: {tool} gave {said}, not {expected}")

    def _judge_ledger(self, turn: str, began: dict[str, Any], ended: dict[str, Any]) -> None:
        ledger = ended["ledger"]
        how = ended["how"]
        if len(ledger) != len(began["calls"]):
            self.wrong.append(f"turn {turn} ({how}): a ledger of {len(ledger)} for {len(began['calls'])} calls")
            return
        if how == "overloaded" and (not ended["retry_after"] or set(ledger) != {"not_sent"}):
            self.wrong.append(f"turn {turn}: overloaded without a hint, or after something ran: {ended}")
        for (token, tool), state in zip(began["calls"], ledger, strict=True):
            starts, ends = self._starts(token), self._ends(token)
            if (state == "not_sent" and starts) or (state == "finished" and not ends and tool != "no_such_tool"):
                self.wrong.append(f"turn {turn} ({how}): {token} ({tool}) is {state}, and ran {starts}, ended {ends}")

    def _judge_order(self, turn: str, began: dict[str, Any]) -> None:
        """The calls of a batch of a source that runs one after the other start in call order, in one process."""
        by_source: dict[str, list[Ran]] = defaultdict(list)
        for token, tool in began["calls"]:
            if tool is not None and not tool.startswith(("swift", "twice")):
                by_source[tool.partition("_")[0]] += [ran for ran in self._runs.get(token, ()) if ran.kind == "s"]
        for source, runs in by_source.items():
            if [ran.at for ran in runs] != sorted(ran.at for ran in runs) or len({ran.pid for ran in runs}) > 1:
                self.wrong.append(f"turn {turn}: the batch of {source} ran out of order or in two processes: {runs}")

    def _judge_silence(self, turn: str, began: dict[str, Any], ended: dict[str, Any]) -> None:
        """When a cancel is confirmed, or the results are there, nothing of the turn runs any more."""
        last = max((ran.at for token, _ in began["calls"] for ran in self._runs.get(token, ())), default=0.0)
        quiet = None
        # "finished_first" of a turn that had failed already says that it was over; its rest is then being cancelled.
        if ended.get("cancel") in ("stopped", "killed") or (ended.get("cancel") and ended["how"] == "turn_cancelled"):
            quiet = ended["cancelled_at"]
        elif ended["how"] == "ok":
            quiet = ended["at"]
        elif "ledger" in ended:
            quiet = ended["at"] + _AFTERMATH
        if quiet is not None and last > quiet:
            self.wrong.append(f"turn {turn} ({ended['how']}): ran {last - quiet:.3f} s after it was said to be over")

    def _starts(self, token: str | None) -> int:
        return sum(ran.kind == "s" for ran in self._runs.get(token or "", ()))

    def _ends(self, token: str | None) -> int:
        return sum(ran.kind == "f" for ran in self._runs.get(token or "", ()))


def whole_lines(file: Path) -> list[str]:
    """The lines that were written whole: whoever wrote may have been killed."""
    return [line for line in file.read_text().split("\n")[:-1] if line]
