"""Several arrays in one buffer, so that they travel as one message."""

import functools
import math
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from plait import _core

_TREE_BYTES = 71  # of a tree's text in the core
_WORDS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}


def messages(leaves: Sequence, is_by_dtype: bool) -> list[list[int]]:
    """Which leaves travel together: all leaves, or those of each dtype."""
    if not is_by_dtype:
        return [list(range(len(leaves)))]
    groups: dict[Any, list[int]] = {}
    for i, x in enumerate(leaves):
        groups.setdefault(x.dtype, []).append(i)
    return list(groups.values())


def _item_bytes(dtype: Any) -> int:
    """Bytes of the smallest unit that words are cut from: a complex number has two units."""
    return dtype.itemsize // (2 if jnp.issubdtype(dtype, jnp.complexfloating) else 1)


def _to_words(x: Any, word: Any) -> Any:
    """The bits of a 2-D array; its last axis grows."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = jnp.stack([jnp.real(x), jnp.imag(x)], -1).reshape(x.shape[0], 2 * x.shape[1])
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint8)
    bits = jax.lax.bitcast_convert_type(x, word)
    return bits.reshape(x.shape[0], x.shape[1] * x.dtype.itemsize // word.dtype.itemsize)


def _from_words(words: Any, dtype: Any) -> Any:
    """The inverse; widths are explicit, since arrays without rows would not determine them."""
    if dtype == jnp.bool_:
        return words != 0
    if jnp.issubdtype(dtype, jnp.complexfloating):
        part = jnp.finfo(dtype).dtype
        parts = _from_words(words, part)
        pairs = parts.reshape(parts.shape[0], parts.shape[1] // 2, 2)
        return jax.lax.complex(pairs[..., 0], pairs[..., 1])
    n_words = dtype.itemsize // words.dtype.itemsize
    if n_words > 1:
        words = words.reshape(words.shape[0], words.shape[1] // n_words, n_words)
    return jax.lax.bitcast_convert_type(words, dtype)


@functools.cache
def _tree(leaves: tuple[tuple[str, tuple[int, ...]], ...]) -> int:
    """The number by which ranks compare joined arrays (`src/base/tree.h`)."""
    text = " ".join(f"{dtype}{list(shape)}".replace(", ", ",") for dtype, shape in leaves)
    number = zlib.crc32(text.encode()) >> 1 or 1
    if len(text) > _TREE_BYTES:  # the difference may lie beyond the end
        shown = text[: _TREE_BYTES - 30].rpartition(" ")[0]
        text = f"{shown} ... {len(leaves)} arrays, #{number:x}"
    _core.lib.plait_tree_put(number, text.encode())
    return number


class Packed:
    """Arrays with the same first ``n`` axes, side by side in one buffer.

    Arrays of one dtype keep it; of several dtypes they become words as wide as the narrowest dtype
    allows, since the compiler converts word by word.
    """

    def __init__(self, leaves: Sequence, n: int):
        self._rest = [x.shape[n:] for x in leaves]
        self._dtypes = [x.dtype for x in leaves]
        lead = leaves[0].shape[:n]
        n_rows = math.prod(lead)
        self._word = None
        rows = [x.reshape(n_rows, math.prod(r)) for x, r in zip(leaves, self._rest, strict=True)]
        if len(set(self._dtypes)) > 1:
            self._word = _WORDS[min(4, *map(_item_bytes, self._dtypes))]
            rows = [_to_words(x, self._word) for x in rows]
        kinds = tuple(zip(map(str, self._dtypes), self._rest, strict=True))
        self._tree = _tree(kinds) if len(kinds) > 1 else 0
        self._widths = [x.shape[1] for x in rows]
        self.buffer = jnp.concatenate(rows, axis=1).reshape(*lead, sum(self._widths))

    def trees(self, received: "Packed | None" = None) -> dict[str, int]:
        """The parameter with the trees of what is sent, and of what is received beside it."""
        numbers = self._tree | (received._tree if received else 0) << 32
        return {"trees": numbers} if numbers else {}

    def unpack(self, y: Any, lead: tuple[int, ...]) -> list:
        """The arrays that a buffer with leading axes ``lead`` holds."""
        y = y.reshape(math.prod(lead), sum(self._widths))
        parts, start = [], 0
        for width, rest, dtype in zip(self._widths, self._rest, self._dtypes, strict=True):
            part = y[:, start : start + width]
            if self._word is not None:
                part = _from_words(part, dtype)
            parts.append(part.reshape(*lead, *rest))
            start += width
        return parts
