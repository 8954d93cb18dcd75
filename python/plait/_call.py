"""From the arguments of a public function to its primitive, and back to a pytree."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from plait import _args, _jax, _ops
from plait._groups import Group


class Tree:
    """The leaves of an operand as arrays, and the way back to a pytree like it.

    Typed PRNG keys travel as their data. arrays: the leaves as the caller sees them; operations
    refer to their axes.
    """

    def __init__(self, x: Any, name: str, argument: str = "x"):
        if x is None:  # a pytree without leaves, but more likely a mistake
            raise TypeError(f"{name}: {argument} is None; expected an array or a pytree of arrays")
        given, self._tree = jax.tree.flatten(x)
        try:
            self.arrays = arrays = [_args.array(leaf, name, argument) for leaf in given]
        except TypeError:
            for path, leaf in jax.tree_util.tree_leaves_with_path(x):
                _args.array(leaf, name, argument + jax.tree_util.keystr(path))
            raise
        self._impls = [jax.random.key_impl(a) if _args.is_key(a) else None for a in arrays]
        self.leaves = [
            a if impl is None else jax.random.key_data(a)
            for a, impl in zip(arrays, self._impls, strict=True)
        ]

    def like(self, results: Sequence) -> Any:
        """The results as a pytree with this one's structure."""
        made = [
            y if impl is None else jax.random.wrap_key_data(y, impl=impl)
            for y, impl in zip(results, self._impls, strict=True)
        ]
        return jax.tree.unflatten(self._tree, made)


def reducible(x: Any, op: Any, name: str) -> tuple[Tree, int]:
    """The operand of a reduction and the reduction's number."""
    reduction, tree = _args.reduction(op, name), Tree(x, name)
    for i, leaf in enumerate(tree.leaves):
        try:
            _args.check_reduction(name, reduction, leaf.dtype)
        except TypeError as error:
            path = jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path(x)[i][0])
            raise TypeError(f"{error} (x{path})" if path else str(error)) from None
    if any(impl is not None for impl in tree._impls):
        raise TypeError(f"{name}: {reduction.name} is not defined for PRNG keys")
    return tree, reduction.code


def answer(result: Any, token: Any, token_out: Any) -> Any:
    """What a function returns: with ``token=`` also the next token."""
    return result if token is None else (result, token_out)


def run(
    row: str,
    name: str,
    tree: Tree,
    group: Group,
    token: Any,
    *,
    after: Callable[[Any], Any] | None = None,
    **params: Any,
) -> Any:
    """Binds the operation ``row`` of the core for the function ``name``."""
    token = _args.token(token, name)
    if not tree.leaves:
        return answer(tree.like([]), token, token)
    leaves = tree.leaves
    if group.checks and row != "allreduce":  # its adjoint needs no message for such operands
        leaves = [_jax.pcast_varying(x, group.over) for x in leaves]
    results, out = _ops.call(row, *leaves, token=token, group=group, **params)
    if after is not None:
        results = list(map(after, results))
    return answer(tree.like(results), token, out)


def route(
    name: str,
    tree: Tree,
    group: Group,
    token: Any,
    edges: Sequence[int],
    *,
    n_in: int | None = None,
    n_out: int | None = None,
    after: Callable[[Any], Any] | None = None,
) -> Any:
    """Blocks of axis 0 along edges; None: the whole array is one block, without a block axis."""
    if n_in is None:
        tree.leaves = [x[None] for x in tree.leaves]
    if n_out is None:
        after = _first
    return run(
        "route",
        name,
        tree,
        group,
        token,
        after=after,
        edges=tuple(edges),
        n_in=1 if n_in is None else n_in,
        n_out=1 if n_out is None else n_out,
    )


def _first(y: Any) -> Any:
    return y[0]
