"""How a matrix enters and leaves JAXMg's solvers: by columns or rows, in order or dealt out.

The same functions serve global arrays and, inside ``jax.shard_map``, the part of one device.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from plait import _dealt, _dealt_inside, _dense_args
from plait._dealt import Deal, Matrix
from plait._split import Spec

WHOLE: Spec = ((), ())


@dataclasses.dataclass(frozen=True)
class Form:
    """The form of an n x n matrix.

    axis: the array axis that is split: 1 in releases up to 0.0.1, 0 in later ones.
    names: the mesh axes that split it.
    block: columns or rows of the tiles that have been dealt out; 0: not dealt out.
    """

    n: int
    axis: int
    names: tuple[str, ...]
    block: int = 0

    @property
    def spec(self) -> Spec:
        """Of the array."""
        return (self.names, ()) if self.axis == 0 else ((), self.names)

    @property
    def blocks(self) -> tuple[int, int]:
        """Of the array's axes."""
        return (self.block, 0) if self.axis == 0 else (0, self.block)


def deal_in(a: Any, form: Form, deal: Deal) -> Matrix:
    """The matrix dealt out. Its rows are the columns of its transpose, so of its conjugate."""
    n = form.n
    blocks = (form.blocks, (deal.block, 0))
    given = {"dims": deal.shape(n, n), "shape": (n, n), "blocks": blocks, "turn": form.axis == 1}
    found = Matrix(deal.redistribute(a, form.spec, deal.spec, **given), deal, n, n)
    return found if form.axis == 1 else found.conj()


def back(a: Matrix, form: Form, dims: tuple[int, int]) -> Any:
    """The matrix in this form, as an array of these extents."""
    a = a if form.axis == 1 else a.conj()
    return _undo(a, form, dims, turn=form.axis == 1)


def columns_back(v: Matrix, form: Form, dims: tuple[int, int]) -> Any:
    """A matrix that is not Hermitian: always by its columns; dims: of the operand."""
    by_columns = dataclasses.replace(form, axis=1)
    return _undo(v, by_columns, dims if form.axis == 1 else dims[::-1], turn=True)


def _undo(a: Matrix, form: Form, dims: tuple[int, int], turn: bool) -> Any:
    deal, n = a.deal, form.n
    blocks = ((deal.block, 0), form.blocks)
    given = {"dims": dims, "shape": (n, n), "blocks": blocks, "turn": turn}
    return deal.redistribute(a.data, deal.spec, form.spec, **given)


def rhs_in(b: Any, deal: Deal) -> Matrix:
    """Right-hand sides that every device has, dealt out, or unchanged if they are few."""
    if not isinstance(deal, _dealt_inside.Inside):
        return _dealt.deal_out(b, WHOLE, _dense_args.deal_of_rhs(deal, b.shape, b.dtype))
    m, n = b.shape
    columns = deal.columns(n)
    data = jnp.where((columns < n)[:, None], b.T[jnp.minimum(columns, n - 1)], 0)
    return Matrix(data.astype(b.dtype), deal, m, n)


def solution_back(x: Matrix) -> Any:
    """The whole matrix on every device."""
    deal = x.deal
    if isinstance(deal, _dealt_inside.Inside):
        return deal.in_order(x.data, x.n).T
    return _dealt.collect(x, WHOLE)
