"""The operands of a batched operation, laid out so that one message takes the whole batch."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp


def first(x: Any, dim: int | None) -> Any:
    """The first of a batch, for what the whole batch has in common."""
    return x if dim is None else jax.lax.index_in_dim(x, 0, dim, keepdims=False)


@dataclasses.dataclass(frozen=True)
class Batch:
    """The operands of a batched operation, laid out for one message.

    size: of the batch; None: nothing is batched, and the operation runs once.
    tokens: all tokens of a batch, with their axis; the first one orders.
    """

    operands: list
    token: Any
    after: Sequence
    size: int | None
    tokens: tuple[Any, int | None]

    def token_out(self, token: Any) -> tuple[Any, int | None]:
        """The next token: the others of a batch keep their values, behind the first one."""
        tokens, dim = self.tokens
        if dim is None:
            return token, None
        return jax.lax.dynamic_update_index_in_dim(tokens, token, 0, dim), dim


def laid_out(
    form: Any, args: Sequence, dims: Sequence, params: dict, size: int | None = None
) -> Batch:
    """Puts the batch axis first in the payload; size: makes a batch whatever the operands."""
    leaves, token, after = form.split(args, params)
    dims, token_dim, after_dims = form.split(dims, params)
    n_payload = len(leaves) - form.operation.rules.plain[0]
    payload, plain = leaves[:n_payload], map(first, leaves[n_payload:], dims[n_payload:])
    dims = dims[:n_payload]
    n, _ = form.operation.rules.frame(params)
    sizes = [x.shape[d] for x, d in zip(payload, dims, strict=True) if d is not None]
    size = sizes[0] if sizes else size
    if size is not None:
        payload = [
            jnp.broadcast_to(jnp.expand_dims(x, n), (*x.shape[:n], size, *x.shape[n:]))
            if d is None
            else jnp.moveaxis(x, d, n)
            for x, d in zip(payload, dims, strict=True)
        ]
    after = tuple(map(first, after, after_dims))
    tokens = token, token_dim
    return Batch([*payload, *plain], first(token, token_dim), after, size, tokens)


def batched_results(form: Any, batch: Batch, results: Sequence, params: dict) -> list:
    """Where the batch axis is in each result."""
    _, lead = form.operation.rules.frame(params)
    n_payload = len(results) - form.operation.rules.plain[1]
    dim = None if batch.size is None else len(lead)
    return [dim if i < n_payload else None for i in range(len(results))]
