"""The protocol: every variant gets a short block in turn, round after round; the machine is probed each time.

Cells of one group (one shape, say) are measured together, so that a ratio compares blocks of the same round,
seconds apart. A round that was interrupted is measured again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import variants
from benchmarks.crews import Cell, Crew, WorkerError, bandwidth
from benchmarks.results import Store


@dataclass(frozen=True)
class Plan:
    """`rounds` blocks a cell of at least about `seconds` each, on `threads` threads."""

    rounds: int = 5
    seconds: float = 0.4
    threads: int = 2


class Group:
    """Cells that are measured together, each by a crew of its own; one that fails is noted and left out."""

    def __init__(self, cells: list[Cell], store: Store, plan: Plan):
        self.cells, self.store, self.plan, self.crews = cells, store, plan, {}

    def measure(self, tick: Callable[[str], None]) -> None:
        """Up to `plan.rounds` blocks a cell, calling `tick` with a cell's key after each."""
        done = self.store.begin([cell.key for cell in self.cells])
        if done >= self.plan.rounds:
            return
        try:
            self.enlist()
            steps = {cell: self.attempt(cell, self.warm) for cell in list(self.crews)}
            for _ in range(done, self.plan.rounds):
                for cell in list(self.crews):
                    self.attempt(cell, lambda cell: self.block(cell, steps[cell]))
                    tick(cell.key)
            for cell in list(self.crews):
                self.attempt(cell, self.remember)
        finally:
            for crew in self.crews.values():
                crew.end()

    def attempt(self, cell: Cell, do: Callable[[Cell], object]):
        """do(cell), or a note of why not."""
        try:
            return do(cell)
        except (WorkerError, OSError) as error:
            self.store.put(cell.key, error=str(error))
            self.crews.pop(cell).end()

    def enlist(self) -> None:
        """Start the crews, as many at a time as there are threads, and hear that their models are built."""
        waiting: list[Cell] = []
        for cell in self.cells:
            if "error" in self.store.cells[cell.key]:
                continue
            self.crews[cell] = Crew(cell, self.plan.threads)
            waiting.append(cell)
            if len(waiting) == self.plan.threads:
                self.attempt(waiting.pop(0), self.greet)
        for cell in waiting:
            self.attempt(cell, self.greet)

    def greet(self, cell: Cell) -> None:
        answers = self.crews[cell].hear()
        count = sum(answer["parameters"] or 0 for answer in answers)
        self.store.put(cell.key, parameters=count or None, built=total(answers))

    def warm(self, cell: Cell) -> int:
        """The first step, timed; then the number of steps that fill a block."""
        seconds, _ = self.crews[cell].run(1)
        self.store.put(cell.key, first=round(seconds, 4))
        return self.crews[cell].steps_for(self.plan.seconds)

    def block(self, cell: Cell, steps: int) -> None:
        before = bandwidth()
        _, rate = self.crews[cell].run(steps)
        models = variants.models_of(cell.part, cell.shape)
        self.store.add_block(cell.key, rate * models, before, bandwidth())

    def remember(self, cell: Cell) -> None:
        self.store.put(cell.key, peak=total(self.crews[cell].ask(do="memory")))


def total(answers: list[dict]) -> float:
    return round(sum(answer["memory"] for answer in answers), 1)
