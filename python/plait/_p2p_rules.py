"""Shapes and derivatives of the matched transfers: send, recv, sendrecv.

In backward mode every message goes back the way it came, with its tag. For a receive from any
source or with any tag, this way is known only at run time: the derivative is that of `exchange`,
which also returns partner and tag, and takes them as arrays.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad
from plait import _ops, _pack
from plait._comm import ANY_SOURCE, ANY_TAG, PROC_NULL
from plait._ops import Chain, Rules, active, aval_of, rules, spread


def nothing() -> Any:
    """The message if there is no array: the partner waits for a message all the same."""
    return jnp.zeros((0,), jnp.float32)


def _templates(args: Sequence) -> list:
    """Arrays with the shape and dtype of what is received."""
    return [jnp.zeros(aval_of(x).shape, aval_of(x).dtype) for x in args]


def _known(source: int, name: str) -> int:
    if source == ANY_SOURCE:
        raise ValueError(
            f"{name}: source=ANY_SOURCE has no adjoint, which has to know the sender; pass its rank"
        )
    return source


def _active(args: Sequence, tangents: Sequence) -> list:
    return [ad.instantiate_zeros(tangents[i]) for i in active(args)]


def _pair(peer: int, tag: int) -> Any:
    return np.asarray([peer, tag], np.int32)


def _nobody() -> Any:
    return _pair(PROC_NULL, ANY_TAG)


def _by_exchange(args: Sequence, to: Any, source: Any, params: dict, n: int, **more: Any):
    """For `Rules.general`; n: results that are meant. Arrays to wait for come last."""
    n_own = len(args) - params["n_after"]
    given = {name: params[name] for name in ("group", "site", "n_after")}
    operands = [*args[:n_own], to, source, *args[n_own:]]
    return _ops.operations()["exchange"].primitives[0], operands, given | more, n


# ---- send ----------------------------------------------------------------------------------------


def _send_jvp(
    primal: Chain, tangent: Chain, args: Sequence, tangents: Sequence, params: dict
) -> tuple[list, list]:
    primal.call("send", *args, **params)
    dxs = _active(args, tangents)
    if dxs and tangent.token is None:
        raise TypeError(
            "send: its operand is differentiated, but send has no result through which the loss "
            "depends on it, and the gradient would be zero. Pass token= of a floating dtype and "
            "let the last token reach the loss (plait.depend), or use plait.sendrecv; if no "
            "gradient is wanted, send jax.lax.stop_gradient(x)"
        )
    if dxs:
        tangent.call("send", *dxs, **params)
    return [], []


def _send_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    back = {"source": params["dest"], "tag": params["tag"], "status": 0}
    return chain.call("recv", *_templates(args), **back, group=params["group"])


def _send_joined(chain: Chain, args: Sequence, params: dict) -> list:
    packed = _pack.Packed(args, 0)
    return chain.call("send", packed.buffer, **params, **packed.trees())


def _send_general(args: Sequence, params: dict) -> tuple:
    n = len(args) - params["n_after"]
    sent, rest = args[:n], args[n:]
    to = _pair(params["dest"], params["tag"])
    return _by_exchange([*sent, nothing(), *rest], to, _nobody(), params, 0, n_send=n, status=0)


rules(
    "send",
    Rules(
        _send_transpose,
        general=_send_general,
        results=lambda avals, params: [],
        jvp=_send_jvp,
        joins=_send_joined,
        is_matched=True,
    ),
)

# ---- exchange ------------------------------------------------------------------------------------


def _exchange_jvp(
    primal: Chain, tangent: Chain, args: Sequence, tangents: Sequence, params: dict
) -> tuple[list, list]:
    *leaves, to, _ = args
    n = params["n_send"]
    results = primal.call("exchange", *args, **params)
    sent = _active(leaves[:n], tangents[:n])
    d_templates = _active(leaves[n:], tangents[n : len(leaves)])
    if not sent and not d_templates:
        return results, spread(results, (), ())
    d_ys = tangent.call(
        "exchange",
        *(sent or [nothing()]),
        *(d_templates or [nothing()]),
        to if sent else _nobody(),
        results[-1] if d_templates else _nobody(),
        **(params | {"n_send": max(len(sent), 1), "status": 0}),
    )
    places = active(leaves[n:])
    return results, spread(results, places, d_ys[:-1] if places else ())


def _exchange_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    *leaves, to, source = args
    cts = cts[:-1]
    *sent, _ = chain.call(
        "exchange",
        *cts,
        *_templates(leaves[: params["n_send"]]),
        source,
        to,
        **(params | {"n_send": len(cts), "status": 0}),
    )
    is_template = source[0] == PROC_NULL  # the template was the result
    return [*sent, *(jnp.where(is_template, ct, jnp.zeros_like(ct)) for ct in cts), None, None]


def _exchange_joined(chain: Chain, args: Sequence, params: dict) -> list:
    *leaves, to, source = args
    n = params["n_send"]
    sent, templates = _pack.Packed(leaves[:n], 0), _pack.Packed(leaves[n:], 0)
    given = params | {"n_send": 1} | sent.trees(templates)
    y, matched = chain.call("exchange", sent.buffer, templates.buffer, to, source, **given)
    return [*templates.unpack(y, ()), matched]


rules(
    "exchange",
    Rules(
        _exchange_transpose,
        results=lambda avals, params: [*avals[params["n_send"] : -2], avals[-1]],
        jvp=_exchange_jvp,
        joins=_exchange_joined,
        plain=(2, 1),
        overlaps=lambda params: False,
        is_matched=True,
    ),
)

# ---- recv ----------------------------------------------------------------------------------------


def _is_any(source: int, tag: int) -> bool:
    """Whether the sender or the tag is known only at run time."""
    return source != PROC_NULL and (source == ANY_SOURCE or tag == ANY_TAG)


def _has_known_source(source: int, tag: int) -> bool:
    """Whether a message comes, with its way back known when the program is made."""
    return source != PROC_NULL and not _is_any(source, tag)


def _recv_jvp(
    primal: Chain, tangent: Chain, args: Sequence, tangents: Sequence, params: dict
) -> tuple[list, list]:
    places = active(args)
    if places and _is_any(params["source"], params["tag"]):
        unsent = jnp.zeros((0,), jnp.int32)  # without derivative, unlike `nothing`
        operands = [unsent, *args, _nobody(), _pair(params["source"], params["tag"])]
        given = {"n_send": 1, "status": params["status"], "group": params["group"]}
        ys, d_ys = _exchange_jvp(primal, tangent, operands, [None, *tangents], given)
        return ys[:-1], d_ys[:-1]
    ys = primal.call("recv", *args, **params)
    if not places:
        return ys, spread(ys, (), ())
    d_templates = _active(args, tangents)
    return ys, spread(ys, places, tangent.call("recv", *d_templates, **(params | {"status": 0})))


def _recv_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    dest = _known(params["source"], "recv")
    tag = 0 if params["tag"] == ANY_TAG else params["tag"]
    chain.call("send", *cts, dest=dest, tag=tag, group=params["group"])
    if dest == PROC_NULL:  # the template was the result
        return list(cts)
    return [jnp.zeros_like(ct) for ct in cts]


def _recv_general(args: Sequence, params: dict) -> tuple:
    n, status = len(args) - params["n_after"], params["status"]
    source, unsent = _pair(params["source"], params["tag"]), [nothing(), *args]
    return _by_exchange(unsent, _nobody(), source, params, n, n_send=1, status=status)


rules(
    "recv",
    Rules(
        _recv_transpose,
        general=_recv_general,
        jvp=_recv_jvp,
        overlaps=lambda params: _has_known_source(params["source"], params["tag"]),
        is_matched=True,
    ),
)

# ---- sendrecv ------------------------------------------------------------------------------------


def _sendrecv_jvp(
    primal: Chain, tangent: Chain, args: Sequence, tangents: Sequence, params: dict
) -> tuple[list, list]:
    n, places = params["n_send"], active(args[params["n_send"] :])
    if places and _is_any(params["source"], params["recvtag"]):
        to = _pair(params["dest"], params["sendtag"])
        source = _pair(params["source"], params["recvtag"])
        given = {name: params[name] for name in ("n_send", "status", "group")}
        ys, d_ys = _exchange_jvp(primal, tangent, [*args, to, source], tangents, given)
        return ys[:-1], d_ys[:-1]
    ys = primal.call("sendrecv", *args, **params)
    sent, d_templates = _active(args[:n], tangents[:n]), _active(args[n:], tangents[n:])
    # A side without derivatives has no message; its partner knows that from the dtype.
    given = params | {"status": 0, "donate": False, "n_send": max(len(sent), 1)}
    if not sent:
        given["dest"] = PROC_NULL
    if not d_templates:
        given["source"] = PROC_NULL
    if not sent and not d_templates:
        return ys, spread(ys, (), ())
    d_ys = tangent.call("sendrecv", *(sent or [nothing()]), *(d_templates or [nothing()]), **given)
    return ys, spread(ys, places, d_ys if places else ())


def _sendrecv_transpose(chain: Chain, cts: Sequence, args: Sequence, params: dict) -> list:
    """The message goes back: source and dest, sendtag and recvtag change places."""
    templates = _templates(args[: params["n_send"]])
    back = params | {
        "source": params["dest"],
        "dest": _known(params["source"], "sendrecv"),
        "sendtag": params["sendtag"] if params["recvtag"] == ANY_TAG else params["recvtag"],
        "recvtag": params["sendtag"],
        "status": 0,
        "donate": False,
        "n_send": len(cts),
    }
    sent = chain.call("sendrecv", *cts, *templates, **back)
    if params["source"] == PROC_NULL:  # the template was the result
        return [*sent, *cts]
    return [*sent, *(jnp.zeros_like(ct) for ct in cts)]


def _sendrecv_joined(chain: Chain, args: Sequence, params: dict) -> list:
    n = params["n_send"]
    sent, templates = _pack.Packed(args[:n], 0), _pack.Packed(args[n:], 0)
    given = params | {"n_send": 1} | sent.trees(templates)
    [y] = chain.call("sendrecv", sent.buffer, templates.buffer, **given)
    return templates.unpack(y, ())


def _sendrecv_general(args: Sequence, params: dict) -> tuple:
    n_send, status = params["n_send"], params["status"]
    n = len(args) - params["n_after"] - n_send
    to = _pair(params["dest"], params["sendtag"])
    source = _pair(params["source"], params["recvtag"])
    return _by_exchange(args, to, source, params, n, n_send=n_send, status=status)


rules(
    "sendrecv",
    Rules(
        _sendrecv_transpose,
        general=_sendrecv_general,
        results=lambda avals, params: list(avals[params["n_send"] :]),
        jvp=_sendrecv_jvp,
        joins=_sendrecv_joined,
        overlaps=lambda params: _has_known_source(params["source"], params["recvtag"]),
        is_matched=True,
    ),
)
