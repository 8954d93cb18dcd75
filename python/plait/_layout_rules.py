"""Shapes of the core's operations on arrays with layouts, and derivatives of redistribute.

Transforms and halos have theirs as global primitives (`_mesh_rules`).
"""

from collections.abc import Sequence
from typing import Any

from plait import _layout
from plait._ops import Chain, Rules, aval_of, rules

for _name in ("fft", "halo_exchange", "halo_reduce"):
    rules(
        _name,
        Rules(
            results=lambda avals, params: [
                avals[0].update(
                    shape=params["out_shape"], dtype=params.get("out_dtype", avals[0].dtype)
                )
            ],
            transpose=None,
        ),
    )


def _redistribute_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    swapped = {"from": params["to"], "to": params["from"], "donate": False}
    swapped["out_shape"] = aval_of(args[0]).shape[-params["from"][0] :]
    return chain.call("redistribute", *cts, **(params | swapped))


def _fits(aval: Any, params: dict) -> dict:
    """The layouts below the axes that vmap has put in front of theirs."""
    extents = aval.shape[: aval.ndim - params["from"][0]]
    return {name: _layout.with_leading(params[name], extents) for name in ("from", "to")}


rules(
    "redistribute",
    Rules(
        results=lambda avals, params: [
            a.update(shape=(*a.shape[: a.ndim - params["from"][0]], *params["out_shape"]))
            for a in avals
        ],
        transpose=_redistribute_transpose,
        fits=lambda avals, params: _fits(avals[0], params),
    ),
)
