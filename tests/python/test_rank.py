"""The rank model in one process: every dtype and reduction, errors, eager calls, solvers."""

import copy
import gc
import itertools
import multiprocessing
import pickle
import sys
import threading
import weakref

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import oracle
import plait
import pytest
from plait import _args, _comm, _core, _world

REDUCTIONS = list(_core.reductions())
KINDS = {
    "bool": {"LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR"},
    "float": {"SUM", "PROD", "MIN", "MAX"},
    "complex": {"SUM", "PROD"},
    "int": set(REDUCTIONS),
    "float8": set(),
}


def kind_of(dtype):
    for kind in ("bool", "float8", "float", "complex"):
        if kind in dtype:
            return kind
    return "int" if "int" in dtype else "float"


@pytest.mark.parametrize("name", ["ANY_SOURCE", "ANY_TAG", "PROC_NULL"])
def test_copies_of_what_is_no_rank_and_no_tag(name):
    value = getattr(plait, name)
    for same in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert same is value


@pytest.mark.long(keep=6)
@pytest.mark.parametrize("dtype", list(_core.dtypes()))
def test_dtype_table(dtype):
    x = jnp.asarray(meshes.random((3, 2), "float32") * 3).astype(dtype)
    assert np.array_equal(plait.bcast(x, 0), x)
    assert np.array_equal(plait.sendrecv(x, x, 0, 0), x)
    for name in REDUCTIONS:

        def call(name=name):
            return plait.allreduce(x, getattr(plait, name))

        if name not in KINDS[kind_of(dtype)]:
            with pytest.raises(TypeError, match=f"allreduce: {name} is not defined for {dtype}"):
                call()
        else:
            got = call()
            assert got.dtype == x.dtype
            assert np.array_equal(got, oracle.allreduce([np.asarray(x)], name)[0])


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 3, 4, 1, 2)])
def test_shapes(shape):
    x = jnp.asarray(meshes.random(shape))
    for f in (lambda x: plait.allreduce(x, plait.SUM), lambda x: plait.bcast(x, 0)):
        for g in (f, jax.jit(f), plait.jit(f)):
            assert np.array_equal(g(x), x)


def test_keys_travel():
    key = jax.random.key(3)
    assert jnp.array_equal(plait.bcast(key, 0), key)
    assert jnp.array_equal(plait.sendrecv(key, key, 0, 0), key)


def test_axes_of_keys_are_those_of_their_array():
    """A key has words inside, but they are no blocks."""
    key = jax.random.key(3)
    for f in (plait.alltoall, jax.vmap(plait.alltoall)):
        x = key if f is plait.alltoall else key[None]
        with pytest.raises(ValueError, match=r"must have shape \(nproc, ...\), got \(\)"):
            f(x)
    with pytest.raises(ValueError, match=r"x has no axis \(shape \(\)\)"):
        plait.allgatherv(key, [2])
    assert jnp.array_equal(plait.alltoall(key[None]), key[None])


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_a_reference_is_no_array(wrap):
    f = wrap(lambda x: plait.allreduce(jax.new_ref(x), plait.SUM))
    with pytest.raises(TypeError, match="allreduce: x is (a )?Ref; expected an array"):
        f(jnp.ones(2))


def test_1000_eager_calls_compile_once():
    x = jnp.ones(3)
    compiles = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiles.append(event) if "compile" in event else None
    )
    plait.allreduce(x, plait.SUM)
    compiles.clear()
    for _ in range(1000):
        plait.allreduce(x, plait.SUM)
    assert compiles == []
    plait.allreduce(jnp.ones((2, 1789)), plait.SUM)  # a shape that no other test has
    assert compiles != []
    jax.monitoring.clear_event_listeners()


def test_replicated_program_text_has_no_rank():
    text = jax.jit(lambda x: plait.allreduce(x, plait.SUM)).lower(jnp.ones(3)).as_text()
    world = _comm.resolve(None, "allreduce").id()
    assert "plait_allreduce" in text and f"comm = {_comm.in_programs(world)} : i64" in text


def test_gradients():
    x = jnp.arange(1.0, 4)
    for op in (plait.SUM, plait.PROD, plait.MIN, plait.MAX):

        def f(v, op=op):
            return jnp.sum(jnp.sin(plait.allreduce(v, op)))

        assert np.allclose(jax.grad(f)(x), np.cos(x))
        assert np.allclose(plait.jit(jax.grad(f))(x), np.cos(x))
        hvp = jax.jvp(jax.grad(f), (x,), (jnp.ones(3),))[1]
        assert np.allclose(hvp, -np.sin(x))
    g = jax.grad(lambda v: jnp.sum(plait.sendrecv(v**2, v, 0, 0)))
    assert np.allclose(g(x), 2 * x)
    g = jax.grad(lambda v: jnp.sum(plait.sendrecv(v**2, v, plait.PROC_NULL, plait.PROC_NULL)))
    assert np.allclose(g(x), 1)
    assert np.allclose(jax.grad(lambda v: jnp.sum(plait.bcast(v, 0) ** 2))(x), 2 * x)
    z = x.astype(complex) * (1 + 1j)
    [t] = jax.linear_transpose(lambda v: plait.allreduce(v, plait.SUM), z)(2j * z)
    assert np.allclose(t, 2j * z)
    assert np.allclose(jax.grad(lambda v: plait.depend(v[0], plait.bcast(v, 0)))(x), [1, 0, 0])


def test_sendrecv_with_a_constant_template():
    x, template = jnp.ones((2, 3)), jnp.zeros(3)

    def f(v):
        return jnp.sum(plait.sendrecv(v * 2, template, 0, 0))

    assert np.allclose(jax.grad(f)(x[0]), 2)
    assert np.allclose(jax.vmap(lambda v: plait.sendrecv(v, template, 0, 0))(x), x)
    assert np.allclose(jax.vmap(lambda t: plait.sendrecv(x[0], t, 0, 0))(x), x)
    assert np.allclose(jax.jvp(f, (x[0],), (x[0],))[1], 6)


@pytest.mark.parametrize("solver", ["cg", "gmres", "bicgstab"])
def test_solvers_and_their_gradients(solver):
    def solve(b):
        def matvec(v):
            return 2 * plait.allreduce(v, plait.SUM) + plait.sendrecv(v, v, 0, 0)

        return getattr(jax.scipy.sparse.linalg, solver)(matvec, b)[0]

    b = jnp.arange(3.0)
    assert np.allclose(plait.jit(solve)(b), b / 3)
    assert np.allclose(jax.jit(jax.grad(lambda v: jnp.sum(solve(v) ** 2)))(b), 2 * b / 9)


def test_adjoints_of_what_cannot_be_added():
    x = jnp.ones(3, "float8_e5m2")
    for call in (lambda v: plait.bcast(v, 0), plait.allgather):
        with pytest.raises(TypeError, match="its adjoint is a SUM, which float8_e5m2 does not"):
            jax.vjp(call, x)[1](call(x))


CASES = [
    (
        lambda x: plait.allreduce(x > 0, plait.SUM),
        TypeError,
        "allreduce: SUM is not defined for bool; use LOR, or cast to an integer",
    ),
    (
        lambda x: plait.allreduce(x.astype("complex128"), plait.MIN),
        TypeError,
        "allreduce: MIN is not defined for complex128; complex numbers have no order",
    ),
    (
        lambda x: plait.allreduce(x, plait.BAND),
        TypeError,
        "allreduce: BAND is not defined for float64; cast to an integer or bool",
    ),
    (
        lambda x: plait.allreduce(x.astype("float8_e5m2"), plait.MIN),
        TypeError,
        "allreduce: MIN is not defined for float8_e5m2; cast to a wider float",
    ),
    (
        lambda x: plait.sendrecv(x, x, 0, plait.ANY_SOURCE),
        ValueError,
        "sendrecv: dest plait.ANY_SOURCE is not a rank",
    ),
    (lambda x: plait.allreduce(x, "sum"), TypeError, "expected one of plait.{SUM, PROD,"),
    (
        lambda x: plait.bcast(x, True),
        TypeError,
        "bcast got unexpected type for argument \"root\" (expected: integer, got: <class 'bool'>)",
    ),
    (lambda x: plait.bcast(x, 0.5), TypeError, "expected: integer, got: <class 'float'>"),
    (
        lambda x: jax.jit(plait.bcast)(x, 0),
        TypeError,
        "An abstract tracer was passed where a concrete value is expected",
    ),
    (
        lambda x: plait.bcast(x, 1),
        ValueError,
        "bcast: root 1 is not a rank of this communicator (size 1)",
    ),
    (lambda x: plait.bcast(x, -5), ValueError, "bcast: root -5 is not a rank"),
    (
        lambda x: plait.sendrecv(x, x, 0, 100),
        ValueError,
        "sendrecv: dest 100 is not a rank of this communicator (size 1)",
    ),
    (
        lambda x: plait.sendrecv(x, x, 0, 0, sendtag=-1),
        ValueError,
        "sendrecv: sendtag -1 is outside 0..2147483647",
    ),
    (
        lambda x: plait.sendrecv(x, x, 0, 0, recvtag=2**31),
        ValueError,
        "sendrecv: recvtag 2147483648 is outside 0..2147483647",
    ),
    (lambda x: plait.sendrecv(x, x, 0, 0, status=3), TypeError, "expected MPI.Status"),
    (
        lambda x: plait.allreduce(x, plait.SUM, comm=3),
        TypeError,
        "allreduce: comm is int; expected None, plait.Comm, an mpi4py Intracomm",
    ),
    (
        lambda x: plait.allreduce(x, plait.SUM, comm="a"),
        TypeError,
        "allreduce: comm='a' names mesh axes, but the call is not inside jax.shard_map",
    ),
    (lambda x: plait.allreduce(x, plait.SUM, token=3), TypeError, "token is int"),
    (lambda x: plait.depend(jnp.arange(3)), TypeError, "depend: value holds no array"),
    (
        lambda x: plait.scatter(jnp.ones((5, 3)), 0),
        ValueError,
        "Scatter input must have shape (nproc, ...), got (5, 3) with nproc 1",
    ),
    (
        lambda x: plait.alltoall(x),
        ValueError,
        "Alltoall input must have shape (nproc, ...), got (3,) with nproc 1",
    ),
    (
        lambda x: plait.reduce_scatter(x[0], plait.SUM),
        ValueError,
        "Reduce_scatter input must have shape (nproc, ...), got () with nproc 1",
    ),
    (
        lambda x: plait.allgatherv(x, [4]),
        ValueError,
        "allgatherv: x has 3 rows (shape (3,)), but counts (4,) say for rank 0 4",
    ),
    (
        lambda x: plait.gatherv(x[0], [1], 0),
        ValueError,
        "gatherv: x has no axis (shape ()), but counts (1,) say for rank 0 1",
    ),
    (
        lambda x: plait.reduce_scatterv(x, plait.SUM, [2]),
        ValueError,
        "reduce_scatterv: x has 3 rows (shape (3,)), but the sum of counts (2,) is 2",
    ),
    (
        lambda x: plait.scatterv(x, [1, 2], 0),
        ValueError,
        "scatterv: counts has 2 entries, expected 1",
    ),
    (
        lambda x: plait.allgatherv(x, [-3]),
        ValueError,
        "allgatherv: counts has the negative entry -3",
    ),
    (
        lambda x: plait.allgatherv(x, [3.0]),
        TypeError,
        'allgatherv got unexpected type for argument "counts[0]"',
    ),
    (lambda x: plait.allgatherv(x, 3), TypeError, "expected: sequence of integers, got:"),
    (
        lambda x: jax.jit(plait.allgatherv)(x, jnp.asarray([3])),
        TypeError,
        "An abstract tracer was passed where a concrete value is expected",
    ),
    (
        lambda x: plait.alltoallv(x, [[2]]),
        ValueError,
        "alltoallv: x has 3 rows (shape (3,)), but the sum of counts[0] is 2",
    ),
    (lambda x: plait.alltoallv(x, 3), TypeError, "expected: sequence of integers, got:"),
    (lambda x: plait.alltoallv(x, [[1], [2]]), ValueError, "counts has 2 rows, expected 1"),
    (lambda x: plait.alltoallv(x, [[1, 2]]), ValueError, "counts[0] has 2 entries, expected 1"),
    (
        lambda x: plait.reduce(x > 0, plait.SUM, 0),
        TypeError,
        "reduce: SUM is not defined for bool; use LOR, or cast to an integer",
    ),
    (lambda x: plait.minloc(x > 0), TypeError, "minloc: MIN is not defined for bool"),
    (lambda x: plait.maxloc(x.astype("complex64")), TypeError, "complex numbers have no order"),
    (
        lambda x: plait.scan({"a": x, "b": x > 0}, plait.PROD),
        TypeError,
        "scan: PROD is not defined for bool; use LAND, or cast to an integer (x['b'])",
    ),
    (
        lambda x: plait.bcast({"layers": [x, jax.nn.relu]}, 0),
        TypeError,
        "bcast: x['layers'][1] is custom_jvp; expected an array of a dtype that JAX has",
    ),
    (lambda x: plait.gather(x, 1), ValueError, "gather: root 1 is not a rank"),
    (
        lambda x: plait.send(x, 0, tag=True),
        TypeError,
        'send got unexpected type for argument "tag"',
    ),
    (lambda x: plait.recv(x, 0, tag=-3), ValueError, "recv: tag -3 is outside 0..2147483647"),
    (lambda x: plait.permute(x, [(0, 1)]), ValueError, "permute: perm[0] 1 is not a rank"),
    (lambda x: plait.permute(x, None), TypeError, "permute: perm is None; expected pairs"),
    (lambda x: plait.permute(x, [0, 1]), TypeError, "permute: perm is [0, 1]; expected pairs"),
    (lambda x: plait.allreduce(None, plait.SUM), TypeError, "allreduce: x is None; expected an"),
    (lambda x: plait.recv(None, 0), TypeError, "recv: x is None; expected an array or a pytree"),
    (
        lambda x: plait.allgather({"a": x, "b": np.ones(2, ">f4")}),
        TypeError,
        "allgather: x['b'] is of dtype >f4; expected an array of a dtype that JAX has",
    ),
    (
        lambda x: plait.allreduce([x, np.ma.masked_array([1.0], [True])], plait.SUM),
        TypeError,
        "allreduce: x[1] is a masked array; pass x.filled(value)",
    ),
    (lambda x: plait.bcast("x", 0), TypeError, "bcast: x is str; expected an array of a dtype"),
    (lambda x: plait.fft.fftn(None), TypeError, "fftn: x is None; expected an array of a dtype"),
    (lambda x: plait.fft.pfft3d(np.empty((1, 1, 1), "O")), TypeError, "x is of dtype object; exp"),
    (lambda x: plait.halo.pad(np.ones(2, "M8[D]"), 1), TypeError, "halo.pad: x is of dtype date"),
    (lambda x: plait.sum("abc"), TypeError, "sum: x is str; expected an array of a dtype that"),
    (
        lambda x: plait.neighbor_alltoall(x),
        TypeError,
        "neighbor_alltoall: the communicator has no topology",
    ),
    (
        lambda x: plait.allgather(x, replicated="yes"),
        TypeError,
        "allgather: replicated is 'yes'; expected False, True or \"check\"",
    ),
]


@pytest.mark.parametrize("call,error,text", CASES)
def test_bad_input(call, error, text):
    with pytest.raises(error) as caught:
        call(jnp.ones(3))
    assert text in str(caught.value)


def test_what_jax_refuses_for_another_reason_is_told_by_jax():
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
        try:
            y = plait.bcast(np.ones(3, np.float32), 0)
        except ValueError as error:
            assert "lowering_platforms" in str(error) and "dtype" not in str(error)
        else:  # JAX versions that support it
            assert np.array_equal(y, np.ones(3))


def test_send_to_oneself():
    def f(x):
        plait.send(x, 0, tag=1)
        plait.send({"a": x * 2, "b": jnp.int8(3)}, 0, tag=2)
        y = plait.recv({"a": x, "b": jnp.int8(0)}, tag=2)
        return y, plait.recv(x, 0)

    x = jnp.arange(3.0)
    for g in (f, plait.jit(f), jax.jit(f)):
        tree, y = g(x)
        assert np.array_equal(tree["a"], 2 * x) and tree["b"] == 3 and np.array_equal(y, x)

    def loss(x, token):
        token = plait.send(x**2, 0, token=token)
        y, token = plait.recv(x, token=token)
        return plait.depend(jnp.sum(y * x), token)

    assert np.allclose(plait.jit(jax.grad(loss))(x, plait.create_token()), 3 * x**2)
    batch = jax.vmap(lambda v: plait.recv(plait.depend(v, plait.send(v, 0)), 0))(jnp.ones((2, 3)))
    assert np.array_equal(batch, np.ones((2, 3)))


def test_large_tags():
    """Without messages between processes, nothing but the program limits tags."""

    def f(x):
        for i, tag in enumerate(tags):
            plait.send(x + i, 0, tag=tag)
        return [plait.recv(x, 0, tag=tag) for tag in tags[::-1]]

    def loss(x):
        return jnp.sum(plait.sendrecv(x**2, x, 0, 0, sendtag=tags[-1]))

    tags = (32768, 1_000_003, 536870911, 2**31 - 1)
    x = jnp.arange(3.0)
    for g in (f, plait.jit(f)):
        assert np.array_equal(g(x), [x + 3, x + 2, x + 1, x])
    assert np.allclose(jax.grad(loss)(x), 2 * x)


def test_nothing_keeps_a_freed_communicator():
    comm = plait.Comm()
    number = comm.id()
    plait.allreduce(jnp.ones(2), plait.SUM, comm=comm)
    assert _comm.of_number(number) == comm and _comm.in_programs(number) != number
    seen = weakref.ref(_comm.of_number(number))
    comm.free()
    del comm
    gc.collect()
    assert seen() is None and _comm.in_programs(number) == number
    with pytest.raises(plait.CommError, match=f"communicator #{number} was freed"):
        _comm.of_number(number)


def test_freed_communicator():
    comm = plait.Comm()
    f = plait.jit(lambda x: plait.allreduce(x, plait.SUM, comm=comm))
    assert f(jnp.ones(2)).tolist() == [1, 1]
    comm.free()
    comm.free()
    with pytest.raises(
        plait.CommError, match=r"^allreduce: communicator #\d+ \(made at .*\) was freed"
    ):
        plait.block(f(jnp.ones(2)))
    with pytest.raises(plait.CommError, match=r"allreduce: communicator #\d+ .* was freed"):
        plait.allreduce(jnp.ones(2), plait.SUM, comm=comm)
    with pytest.raises(plait.CommError), plait.errors():
        jax.block_until_ready(jax.jit(lambda x: f(x))(jnp.ones(2)))
    assert issubclass(plait.CommError, jax.errors.JaxRuntimeError)
    assert plait.allreduce(jnp.ones(2), plait.SUM).tolist() == [1, 1]


def test_a_copied_communicator_is_itself():
    comm = plait.Comm()
    held = {"comm": comm, "x": jnp.ones(2)}
    assert copy.copy(comm) is comm and copy.deepcopy(comm) is comm
    assert copy.deepcopy(held)["comm"] is comm
    # a copy with the same structure finds the same programs
    f = plait.jit(lambda x, comm: plait.allreduce(x, plait.SUM, comm=comm), static_argnums=1)
    assert f(held["x"], comm).tolist() == f(held["x"], copy.deepcopy(comm)).tolist() == [1, 1]
    assert f._cache_size() == 1


def test_a_pickled_communicator_is_that_of_the_reader():
    comm = plait.Comm()
    read = pickle.loads(pickle.dumps(comm))
    assert type(read) is plait.Comm and read == comm and hash(read) == hash(comm)
    assert plait.allreduce(jnp.ones(2), plait.SUM, comm=read).tolist() == [1, 1]
    comm.free()
    with pytest.raises(plait.CommError, match=r"^pickle: communicator #\d+ .* was freed"):
        pickle.dumps(comm)


def test_a_child_of_multiprocessing_reads_no_communicator(monkeypatch):
    """The child has the launcher's variables, but MPI would end it at once."""
    text = pickle.dumps(plait.Comm())
    monkeypatch.setattr(multiprocessing, "parent_process", object)
    assert pickle.loads(text) == plait.Comm()
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    with pytest.raises(plait.CommError, match=r"is not a rank .* comm\.rank"):
        pickle.loads(text)


@pytest.mark.parametrize(
    ("variables", "size"),
    [
        ({}, (1, "")),
        ({"PMI_SIZE": "3"}, (3, "PMI_SIZE")),
        ({"PMI_SIZE": "1", "SLURM_STEP_NUM_TASKS": "2"}, (1, "")),
        ({"PMI_SIZE": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, "")),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, (2, "OMPI_COMM_WORLD_SIZE")),
        ({"SLURM_STEP_NUM_TASKS": "2"}, (2, "SLURM_STEP_NUM_TASKS")),
    ],
)
def test_the_launcher_of_the_mpi_that_will_be_loaded_counts(variables, size, monkeypatch):
    for name in _world._SIZES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_world, "_library_family", lambda: ("MPICH", "a test"))
    assert _world.launcher_size() == size


def test_reductions_are_values():
    assert plait.SUM == _args.Reduction(0, "SUM") and hash(plait.SUM) == hash(
        _args.Reduction(0, "")
    )
    assert repr(plait.MAX) == "plait.MAX"


def test_communicators_are_values():
    comm = plait.Comm()
    assert comm == plait.Comm() and hash(comm) == hash(plait.Comm()) and comm != 3
    f = jax.jit(lambda x, comm: plait.allreduce(x, plait.SUM, comm=comm), static_argnums=1)
    assert [f(1.0, plait.Comm()) for _ in range(2)] == [1, 1] and f._cache_size() == 1


def test_meshes_of_several_threads_have_numbers_of_their_own():
    """The same devices in other orders: with one number they would share their programs."""
    orders = list(itertools.permutations(jax.devices()[:5]))[:96]
    made = {}

    def make(part):
        made.update({order: _comm.over_devices((order,)) for order in part})

    threads = [threading.Thread(target=make, args=(orders[i::4],)) for i in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    sys.setswitchinterval(interval)
    assert len(made) == len(set(made.values())) == len(orders)
    assert [_comm.over_devices((order,)) for order in orders] == [made[o] for o in orders]
