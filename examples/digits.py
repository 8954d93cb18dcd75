"""Train a classifier of handwritten digits on any number of MPI ranks, data-parallel.

    plait run -n 2 examples/digits.py

The 1797 digits of 8 x 8 pixels are scikit-learn's. Every rank draws the same batches and takes its
share of each. One `plait.allreduce` inside the jitted epoch sums the gradients, a pytree of all
layers. The parameters start as one pytree that `plait.bcast` gives to all. So the ranks keep the
same bits, and, within rounding, the parameters of a single process.
"""

import argparse
import dataclasses
import statistics
import time

import _options
import _ranks
import _show
import jax
import jax.numpy as jnp
import numpy as np
import plait


@dataclasses.dataclass(frozen=True)
class Training:
    """Layers, and their training: stochastic gradient descent with momentum."""

    hidden: tuple[int, ...] = (128, 64)
    batch: int = 48  # of all ranks together
    rate: float = 0.1
    momentum: float = 0.9
    decay: float = 1e-4
    n_epochs: int = 20
    seed: int = 0


def load(n_tests=360):
    """Images scaled to [0, 1] with labels, ((x, y) to train, (x, y) to test), in a fixed order."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit("this example needs scikit-learn: pip install 'plait[demo]'") from None
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order] / 16, y[order].astype(np.int32)
    return (x[n_tests:], y[n_tests:]), (x[:n_tests], y[:n_tests])


def initial(sizes, seed):
    """Weights and biases of all layers. Source: He et al., ICCV 2015."""
    rng = np.random.default_rng(seed)
    layers = []
    for n_in, n_out in zip(sizes[:-1], sizes[1:], strict=True):
        weight = rng.standard_normal((n_in, n_out)) * np.sqrt(2 / n_in)
        layers.append({"weight": jnp.asarray(weight), "bias": jnp.zeros(n_out)})
    return layers


def logits(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["weight"] + layer["bias"][None])
    return x @ layers[-1]["weight"] + layers[-1]["bias"][None]


def loss(layers, x, y):
    """The sum of the cross-entropies: the ranks' sums add up, even for unequal shares."""
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits(layers, x)), y[:, None], 1)
    return -jnp.sum(chosen)


def make_epoch(training):
    """One pass over batches (n_batches, share, ...) of this rank, jitted as a whole."""

    def step(carry, batch):
        layers, speed = carry
        ours = jax.value_and_grad(loss)(layers, *batch)
        value, gradient = plait.allreduce(ours, plait.SUM)  # all layers in one message

        def changed(v, g, p):
            return training.momentum * v - training.rate * (g / training.batch + training.decay * p)

        speed = jax.tree.map(changed, speed, gradient, layers)
        return (jax.tree.map(jnp.add, layers, speed), speed), value / training.batch

    def epoch(layers, speed, x, y):
        carry, losses = jax.lax.scan(step, (layers, speed), (x, y))
        return *carry, jnp.mean(losses)

    return plait.jit(epoch, donate_argnums=(0, 1))


def shares(data, training, comm, epoch):
    """This rank's rows of each batch; all ranks draw the same order of the whole set."""
    order = np.random.default_rng((training.seed, epoch)).permutation(len(data[0]))
    batches = order[: len(order) // training.batch * training.batch].reshape(-1, training.batch)
    own = batches[:, comm.rank :: comm.size]
    return tuple(jnp.asarray(a[own]) for a in data)


def train(data, training, comm, report=lambda *_: None):
    """The trained layers, equal on all ranks; calls `report` with (epoch, loss, seconds)."""
    if not comm.size <= training.batch <= len(data[0]):
        between = f"from {comm.size}, one for each rank, to {len(data[0])}, all of them"
        raise SystemExit(f"batches of {training.batch} digits; expected {between}")
    n_classes = int(data[1].max()) + 1
    sizes = (data[0].shape[1], *training.hidden, n_classes)
    layers = plait.bcast(initial(sizes, training.seed + comm.rank), 0)  # rank 0's, on all ranks
    speed = jax.tree.map(jnp.zeros_like, layers)
    epoch = make_epoch(training)
    for i in range(1, training.n_epochs + 1):
        x, y = shares(data, training, comm, i)
        started = time.perf_counter()
        layers, speed, value = epoch(layers, speed, x, y)
        report(i, float(value), time.perf_counter() - started)
    return layers


def accuracy(layers, data, comm):
    """The fraction of `data` classified correctly; each rank tests its share."""
    x, y = (jnp.asarray(a[comm.rank :: comm.size]) for a in data)
    right = jnp.sum(jnp.argmax(logits(layers, x), 1) == y)
    return int(plait.allreduce(right, plait.SUM)) / len(data[0])


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    count, file = _options.at_least(1), _options.file(".npz")
    parser.add_argument("--epochs", type=count, default=20, metavar="E")
    parser.add_argument("--batch", type=count, default=48, metavar="B", help="of all ranks")
    parser.add_argument("--rate", type=_options.positive, default=0.1, metavar="R")
    parser.add_argument("--out", type=file, metavar="FILE", help="write the parameters, .npz")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse(arguments)
    comm = plait.Comm()
    say = print if comm.rank == 0 else (lambda *_: None)
    training = Training(batch=options.batch, rate=options.rate, n_epochs=options.epochs)
    training_set, test_set = load()
    say(f"{len(training_set[0])} digits to train, {len(test_set[0])} to test")
    say(f"on {_ranks.describe(comm)}, batches of {training.batch} shared by all")

    times = []
    is_shown = comm.rank == 0 and not options.quiet
    with _show.progress(training.n_epochs, is_shown, "training", "loss", "epoch") as show:

        def report(i, value, seconds):
            times.append(seconds)
            show(i, value, seconds)

        layers = train(training_set, training, comm, report)
    share = accuracy(layers, test_set, comm)
    say(f"accuracy {share:.3f} on the test set after {training.n_epochs} epochs")
    per_epoch = statistics.median(times[1:] or times)
    say(f"{per_epoch * 1e3:.1f} ms per epoch, {times[0]:.1f} s for the first with compiling")
    if options.out and comm.rank == 0:
        named = {f"{k}{i}": v for i, layer in enumerate(layers) for k, v in layer.items()}
        np.savez(options.out, **named)
        say(f"{options.out} written")
    return layers


if __name__ == "__main__":
    main()
