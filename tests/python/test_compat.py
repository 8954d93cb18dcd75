"""The adapters in one process: names, signatures, arguments. MPI ranks test the values."""

import inspect
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import plait
import pytest
from plait.compat import jpi, mpi4jax, mpi4jax_tokens

OPERATIONS = {
    "allgather": "x, *, comm, token",
    "allreduce": "x, op, *, comm, token",
    "alltoall": "x, *, comm, token",
    "barrier": "*, comm, token",
    "bcast": "x, root, *, comm, token",
    "gather": "x, root, *, comm, token",
    "recv": "x, source, *, tag, comm, status, token",
    "reduce": "x, op, root, *, comm, token",
    "scan": "x, op, *, comm, token",
    "scatter": "x, root, *, comm, token",
    "send": "x, dest, *, tag, comm, token",
    "sendrecv": "sendbuf, recvbuf, source, dest, *, sendtag, recvtag, comm, status, token",
}
OF_JPI = {
    "allgather": "x, token, comm",
    "allreduce": "x, token, op, comm",
    "barrier": "token, comm",
    "bcast": "x, token, root, comm",
    "gather": "x, token, root, comm",
    "gen_token": "",
    "get_default_comm": "",
    "recv": "x, token, source, tag, comm",
    "scatter": "x, token, root, comm",
    "send": "x, token, dest, tag, comm",
}


def arguments(function):
    names, is_keyword = [], False
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not is_keyword:
            names.append("*")
            is_keyword = True
        names.append(p.name)
    return ", ".join(names)


@pytest.mark.parametrize("module", [mpi4jax, mpi4jax_tokens])
@pytest.mark.parametrize("name", OPERATIONS)
def test_signatures_of_mpi4jax(module, name):
    function, capital = getattr(module, name), getattr(module, name.capitalize())
    assert arguments(function) == OPERATIONS[name]
    assert arguments(capital) == OPERATIONS[name].replace("*, ", "")
    assert function.__name__ == name and capital.__name__ == name.capitalize()
    assert function.__module__ == capital.__module__ == module.__name__


@pytest.mark.parametrize("name", OF_JPI)
def test_signatures_of_jpi(name):
    assert arguments(getattr(jpi, name)) == OF_JPI[name]


@pytest.mark.parametrize("module", [jpi, mpi4jax, mpi4jax_tokens])
def test_docstrings(module):
    for name in module.__all__:
        assert getattr(module, name).__doc__, name


def calls(module):
    x, row = jnp.arange(3.0), jnp.ones((1, 3))
    return {
        "allgather": lambda **t: module.allgather(x, **t),
        "allreduce": lambda **t: module.allreduce(x, plait.SUM, **t),
        "alltoall": lambda **t: module.alltoall(row, **t),
        "barrier": lambda **t: module.barrier(**t),
        "bcast": lambda **t: module.bcast(x, 0, **t),
        "gather": lambda **t: module.gather(x, 0, **t),
        "recv": lambda **t: module.recv(x, plait.PROC_NULL, **t),
        "reduce": lambda **t: module.reduce(x, plait.SUM, 0, **t),
        "scan": lambda **t: module.scan(x, plait.SUM, **t),
        "scatter": lambda **t: module.scatter(row, 0, **t),
        "send": lambda **t: module.send(x, plait.PROC_NULL, **t),
        "sendrecv": lambda **t: module.sendrecv(x, x, 0, 0, **t),
    }


@pytest.mark.parametrize("token", [None, jnp.zeros(())])
@pytest.mark.parametrize("name", OPERATIONS)
def test_tokens_are_refused(name, token):
    with pytest.raises(RuntimeError, match=f"automatically.*{name}.*mpi4jax_tokens"):
        calls(mpi4jax)[name](token=token)


@pytest.mark.parametrize("make", [lambda: None, plait.create_token, lambda: jnp.arange(4)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_tokens_come_back(name, make):
    given = make()
    plain, answer = calls(mpi4jax)[name](), calls(mpi4jax_tokens)[name](token=given)
    token = answer
    if name not in ("send", "barrier"):
        result, token = answer
        assert np.array_equal(result, plain)
    assert np.array_equal(token, 0 if given is None else given)


@pytest.mark.skipif(not hasattr(jax.lax, "create_token"), reason="gone from this JAX")
def test_tokens_of_xla():
    given = jax.lax.create_token()
    assert mpi4jax_tokens.barrier(token=given) is given


def test_what_is_no_token():
    with pytest.raises(TypeError, match='allreduce got unexpected type for argument "token"'):
        mpi4jax_tokens.allreduce(jnp.ones(2), plait.SUM, token="first")


def test_dropped_tokens_drop_no_operation():
    def f(x):
        mpi4jax_tokens.send(x, plait.PROC_NULL)
        mpi4jax_tokens.barrier()
        return x

    assert jax.make_jaxpr(f)(jnp.ones(2)).effects


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_jpi_sends_what_only_returns_its_operand(dtype):
    x = jnp.ones(2, dtype)
    f = jax.jit(lambda x: jpi.send(x, jpi.gen_token(), plait.PROC_NULL)[0])
    assert f.lower(x).as_text().count("plait_send") == 1 and f(x).tolist() == [1, 1]


def test_without_tokens_in_releases_with_tokens():
    from plait.compat.mpi4jax_tokens.experimental import auto_tokenize, notoken

    x = jnp.arange(3.0)
    assert mpi4jax_tokens.notoken is notoken
    for name in OPERATIONS:
        assert getattr(notoken, name) is getattr(mpi4jax, name)

    @auto_tokenize
    def f(x):
        mpi4jax_tokens.send(jnp.ones(2), plait.PROC_NULL)
        y, _ = mpi4jax_tokens.allreduce(x, plait.SUM)
        return mpi4jax_tokens.bcast(y, 0)[0]

    assert np.array_equal(jax.jit(f)(x), x)
    assert np.array_equal(jax.grad(lambda x: f(x).sum())(x), np.ones(3))


def test_positional_as_in_the_first_readme():
    x = jnp.arange(3.0)
    assert np.array_equal(mpi4jax.Allreduce(x, plait.SUM, plait.Comm()), x)
    y, token = mpi4jax_tokens.Sendrecv(x, x, 0, 0, 1, 1, None, None, jnp.ones(()))
    assert np.array_equal(y, x) and token == 1
    with pytest.raises(TypeError):
        mpi4jax.allreduce(x, plait.SUM, plait.Comm())


def test_scatter_of_jpi():
    token = jpi.gen_token()
    y, _ = jpi.scatter(jnp.arange(4), token, 0)
    assert y.shape == (4,)
    y, _ = jpi.scatter(jnp.ones((1, 4)), token, root=0)
    assert y.shape == (4,)
    with pytest.raises(ValueError, match="number of processes"):
        jpi.scatter(jnp.ones(()), token, 0)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("value,is_on", [("1", True), ("ON", True), ("0", False), ("", False)])
def test_logging_by_environment(value, is_on):
    program = "from plait.compat import mpi4jax; print(mpi4jax.get_logging())"
    environment = os.environ | {"MPI4JAX_DEBUG": value, "PLAIT_DEBUG": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(is_on), done.stderr


@pytest.mark.parametrize("name", ["allgather", "gather", "scatter", "send"])
def test_jpi_names_what_is_no_array(name):
    rest = () if name == "allgather" else (0,)
    with pytest.raises(TypeError, match=f"^{name}: x is None; expected an array"):
        getattr(jpi, name)(None, jpi.gen_token(), *rest)
