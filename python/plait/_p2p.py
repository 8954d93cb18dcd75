"""Transfers between two ranks; only for processes, since the calls differ between the ranks.

Any operand may be a pytree, also of several dtypes: all leaves travel in one message.
"""

from typing import Any

from jax import Array
from plait import _args, _call, _eager, _groups, _ops
from plait._comm import ANY_SOURCE, ANY_TAG, PROC_NULL
from plait._p2p_rules import nothing as _nothing

_INSTEAD = "plait.permute or jax.lax.ppermute"


@_eager.remembered
def send(
    x: Any, dest: int, *, tag: int = 0, comm: Any = None, token: Array | None = None
) -> Array | None:
    """Send ``x`` to ``dest``, which must receive it; with ``token`` it returns the next token.

    Nothing is sent to PROC_NULL. Tags range from 0 to 2147483647; where MPI carries the messages,
    as between nodes, to MPI's own limit, MPI_TAG_UB. Outside of jit the first 64 combinations of
    rank, tag and kind of pytree on a communicator get a compiled program each; later ones share
    programs that take rank and tag as operands.

    A gradient needs a ``token=`` of a floating dtype whose chain reaches the loss, for instance by
    `depend`: nothing else connects the loss with the message. Where both partners send and
    receive, `sendrecv` needs no token.

    Collective: no; ``dest`` must receive. The first use of ``comm``, by whatever operation, is
    collective over its ranks; `plait.Comm(comm)` counts as a use.  Shapes: any to none.
    Raises: TypeError, ValueError for ranks and tags; TypeError for derivatives without token;
    at run time `plait.ArgumentError` for a tag above MPI's largest, and in a traced program for a
    rank that does not exist (a branch that is never taken may name such a rank);
    MismatchError and TruncationError on both partners as in `recv`; for a message of at most 64 KiB
    perhaps from the next operation on the communicator.
    Adjoint: recv from ``dest`` with the same tag.
    Source: MPI 4.0, 3.2.1 (MPI_Send); oracle ``tests/python/oracle.py::send``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.send(jnp.arange(3), plait.PROC_NULL)
    """
    group = _groups.of_processes(comm, "send", token, _INSTEAD)
    tree = _call.Tree(x, "send")
    _, out = _ops.call(
        "send",
        *(tree.leaves or [_nothing()]),
        token=_args.token(token, "send"),
        dest=_args.partner(dest, group.size, "send", "dest", (PROC_NULL,)),
        tag=_args.tag(tag, "send", "tag", False),
        group=group,
    )
    return out


@_eager.remembered
def recv(
    x: Any,
    source: int = ANY_SOURCE,
    *,
    tag: int = ANY_TAG,
    comm: Any = None,
    status: Any = None,
    token: Array | None = None,
) -> Any:
    """Receive an array like the template ``x`` from ``source``.

    ``x`` is never sent; its values are the result if ``source`` is PROC_NULL. ``status``
    (an ``MPI.Status``) is filled when the program runs. ``token`` as in `allreduce`.

    For a gradient of the sender, JAX must differentiate the receiver too: give it a template or
    token with a derivative. Under ``jax.vmap`` the template must be batched like the message:
    ``x * 0`` is batched, ``jnp.zeros_like(x)`` is not.

    Collective: no; ``source`` must send. The first use of ``comm``, by whatever operation, is
    collective over its ranks; `plait.Comm(comm)` counts as a use.  Shapes: any to the same.
    Raises: TypeError, ValueError for ranks and tags, `plait.ArgumentError` as in `send`;
    on both partners TruncationError if the message is longer than the template, MismatchError
    if it is shorter or of another dtype.
    Adjoint: send to ``source`` with the same tag (0 for ANY_TAG); the template gets 0.
    Source: MPI 4.0, 3.2.4 (MPI_Recv); oracle ``tests/python/oracle.py::recv``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.recv(jnp.arange(3), plait.PROC_NULL).tolist()
        [0, 1, 2]
    """
    group = _groups.of_processes(comm, "recv", token, _INSTEAD)
    with _args.status(status, "recv") as number:
        return _call.run(
            "recv",
            "recv",
            _call.Tree(x, "recv"),
            group,
            token,
            source=_args.partner(source, group.size, "recv", "source", (PROC_NULL, ANY_SOURCE)),
            tag=_args.tag(tag, "recv", "tag", True),
            status=number,
        )


@_eager.remembered
def sendrecv(
    sendbuf: Any,
    recvbuf: Any,
    source: int,
    dest: int,
    *,
    sendtag: int = 0,
    recvtag: int = ANY_TAG,
    comm: Any = None,
    status: Any = None,
    token: Array | None = None,
    donate: bool = False,
) -> Any:
    """Send ``sendbuf`` to ``dest`` and receive from ``source`` at once.

    ``recvbuf`` is a template: it gives the shape and dtype of the result, and its values are
    the result if ``source`` is PROC_NULL. ``status`` (an ``MPI.Status``) is filled when
    the program runs. ``token`` as in `allreduce`; ``donate``: the result takes ``recvbuf``'s
    memory.

    Collective: no; senders and receivers must agree. The first use of ``comm``, by whatever
    operation, is collective over its ranks; `plait.Comm(comm)` counts as a use.
    Shapes: ``recvbuf``'s to the same.
    Raises: TypeError, ValueError for ranks and tags, `plait.ArgumentError` as in `send`;
    on both partners TruncationError if the message is longer than the template, MismatchError
    if it is shorter or of another dtype.
    Adjoint: sendrecv with source and dest, and both tags, exchanged.
    Source: MPI 4.0, 3.10 (MPI_Sendrecv); oracle ``tests/python/oracle.py::sendrecv``.

    Example:
        >>> import plait, jax.numpy as jnp
        >>> plait.sendrecv(jnp.arange(3), jnp.zeros(3, int), 0, 0).tolist()
        [0, 1, 2]
    """
    group = _groups.of_processes(comm, "sendrecv", token, _INSTEAD)
    sent = _call.Tree(sendbuf, "sendrecv", "sendbuf")
    received = _call.Tree(recvbuf, "sendrecv", "recvbuf")
    leaves = sent.leaves or [_nothing()]
    with _args.status(status, "sendrecv") as number:
        results, out = _ops.call(
            "sendrecv",
            *leaves,
            *(received.leaves or [_nothing()]),
            token=_args.token(token, "sendrecv"),
            n_send=len(leaves),
            source=_args.partner(source, group.size, "sendrecv", "source", (PROC_NULL, ANY_SOURCE)),
            dest=_args.partner(dest, group.size, "sendrecv", "dest", (PROC_NULL,)),
            sendtag=_args.tag(sendtag, "sendrecv", "sendtag", False),
            recvtag=_args.tag(recvtag, "sendrecv", "recvtag", True),
            status=number,
            donate=bool(donate),
            group=group,
        )
    received_tree = received.like(results[: len(received.leaves)])
    return _call.answer(received_tree, token, out)
