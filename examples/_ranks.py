"""What the examples of the rank model share: how the ranks are laid out and described."""

import plait


def describe(comm):
    """Ranks, the MPI, and how they reach each other's memory."""
    if comm.size == 1:
        return "one rank, no communication with others"
    from mpi4py import MPI

    library = MPI.Get_library_version().replace("MPICH Version:", "MPICH").split("\n")[0]
    name = " ".join(library.split(",")[0].split())
    return f"{comm.size} MPI ranks, {name}, transport {comm.transport} ({comm.direct})"


def process_grid(n_ranks, shape):
    """The numbers of ranks along both axes that divide `shape` with the shortest cuts."""
    grids = [(n_y, n_ranks // n_y) for n_y in range(1, n_ranks + 1) if n_ranks % n_y == 0]
    fitting = [(n_y, n_x) for n_y, n_x in grids if shape[0] % n_y == 0 and shape[1] % n_x == 0]
    if not fitting:
        raise SystemExit(f"{n_ranks} ranks do not divide a grid of {shape[0]} x {shape[1]} cells")
    return min(fitting, key=lambda grid: grid[0] * shape[1] + grid[1] * shape[0])


class Place:
    """This rank's place in the process grid: its cells, and the ranks on its four sides."""

    def __init__(self, comm, shape, has_walls):
        self.comm, self.shape = comm, shape
        self.grid = process_grid(comm.size, shape)
        n_y, n_x = self.grid
        self.row, self.column = divmod(comm.rank, n_x)
        self.cells = (shape[0] // n_y, shape[1] // n_x)
        self.west, self.east = (self._rank(self.row, self.column + d) for d in (-1, 1))
        self.south, self.north = (self._rank(self.row + d, self.column) for d in (-1, 1))
        if has_walls and self.row == 0:
            self.south = plait.PROC_NULL
        if has_walls and self.row == n_y - 1:
            self.north = plait.PROC_NULL

    def _rank(self, row, column):
        return (row % self.grid[0]) * self.grid[1] + column % self.grid[1]

    def part(self, field):
        """This rank's cells of a field that every rank has whole."""
        (n_y, n_x), y, x = self.cells, self.row, self.column
        return field[y * n_y : (y + 1) * n_y, x * n_x : (x + 1) * n_x]

    def rows(self, profile):
        """This rank's rows of a profile in y."""
        return profile[self.row * self.cells[0] : (self.row + 1) * self.cells[0]]

    def whole(self, parts):
        """The field from `parts`, which has one part for each rank."""
        return parts.reshape(*self.grid, *self.cells).swapaxes(1, 2).reshape(self.shape)
