"""Single-precision factors of global double-precision matrices, and refined solutions."""

import dataclasses
from typing import Any

import jax
from jax import Array
from plait import _dense_args, _dense_refine
from plait._dealt import Deal, Matrix
from plait._dense_args import Lay


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Refined:
    """A square matrix and its factor in single precision; both stay on all devices.

    It is a pytree: it may be a result and an operand of jitted functions. Derivatives with respect
    to it are those with respect to the matrix. It takes one and a half times the memory of a factor
    in double precision.
    """

    _matrix: Matrix
    _factor: tuple
    _lay: Lay = dataclasses.field(metadata={"static": True})
    _kind: str = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix."""
        return (self._matrix.n, self._matrix.n)

    @property
    def dtype(self) -> Any:
        """Of the matrix."""
        return self._matrix.dtype

    def solve(self, b: Array, *, spec: Any = None) -> Array:
        """The solution x of a x = b in double precision, split as b; b is (n,) or (n, k).

        ``spec``: how b is split, if its type does not say so (inside jit on Auto axes).
        """
        _dense_args.check_rhs(b, self.shape[0], "solve", self._lay.room and self._lay.room[0])
        matrix = _dense_args.at_home(self._matrix)
        rhs = _dense_args.rhs(b, matrix, spec, "solve")
        deal = _dense_args.deal_of_rhs(matrix.deal, rhs.x.shape, matrix.dtype)
        given = {"lay": rhs.lay, "deal": deal, "kind": self._kind}
        return _dense_args.run(_solution, matrix, self._factor, rhs.x, **given)


def _factored(a: Array, *, lay: Lay, deal: Deal, kind: str) -> tuple[Matrix, tuple]:
    return _dense_refine.factored(kind, _dense_args.deal_in(lay, a, deal))


def _solution(matrix: Matrix, factor: tuple, b: Array, *, lay: Lay, deal: Deal, kind: str) -> Array:
    rhs = _dense_args.deal_in(lay, b, deal)
    return _dense_args.back(_dense_refine.refined(kind, matrix, factor, rhs), lay, b.ndim)


def is_asked_for(precision: Any, check: bool, name: str) -> bool:
    """Whether precision= asks for single precision."""
    if precision not in (None, "single"):
        raise ValueError(f"{name}: precision is {precision!r}; expected None or 'single'")
    if precision == "single" and check:
        raise ValueError(
            f"{name}: check=True with precision='single'; a factor in single precision says "
            "nothing about the matrix, leave check= out"
        )
    return precision == "single"


def refined(kind: str, a: Any, block: Any, mesh: Any, spec: Any, shape: Any, name: str) -> Refined:
    """The factor of an operand of the public function `name`; kind: cholesky or lu."""
    found = _dense_args.located(a, name, mesh, spec, shape, is_square=True)
    if found.x.dtype.name not in _dense_refine.SINGLE:
        raise TypeError(
            f"{name}: a is {found.x.dtype.name}; precision='single' expects float64 or complex128"
        )
    deal = _dense_args.deal_of(found, block, name)
    made = _dense_args.run(_factored, found.x, lay=found.lay, deal=deal, kind=kind)
    return Refined(*made, found.lay, kind)
