"""Cosine and sine transforms as parameters of the operation "fft"."""

import dataclasses
from collections.abc import Callable
from typing import Any

from plait import _jax


@dataclasses.dataclass(frozen=True)
class Waves:
    """Waves of transforms between real numbers: see plait_wave_t in plait/fft.h.

    numbers: for each axis the type, plus 4 for sines; none for other transforms.
    """

    numbers: tuple[int, ...] = ()
    edge_in: float = 1.0
    edge_out: float = 1.0

    def attrs(self) -> dict[str, Any]:
        """The attributes of the operation "fft"."""
        return {"waves": self.numbers, "edge_in": self.edge_in, "edge_out": self.edge_out}

    def transposed(self) -> "Waves":
        """The waves of the adjoint."""
        turned = {2: 3, 3: 2, 6: 7, 7: 6}
        numbers = tuple(turned.get(n, n) for n in self.numbers)
        return Waves(numbers, 2 * self.edge_out, self.edge_in / 2)


by_fourier: list[Callable] = []  # set by _lines.py, which binds operations itself


def lower(ctx: Any, x: Any, given: dict) -> Any:
    """Lowers the operation to others where the core has no waves."""
    names = ("mesh", "src", "dst", "shape", "out", "axes", "scale", "waves")
    chosen = {name: given[name] for name in names}
    return _jax.lower_traced(ctx, lambda x: [by_fourier[0](x, **chosen)], [x])
