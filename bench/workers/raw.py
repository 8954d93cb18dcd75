"""MPI's own calls in a C loop, in this process, through c/raw_mpi.c."""

import ctypes

from mpi4py import MPI


class Raw:
    """Loops over blocking MPI calls on NumPy buffers; each returns its seconds."""

    def __init__(self, library):
        self.lib = ctypes.CDLL(library)
        self.lib.raw_call.restype = ctypes.c_double
        self.comm = MPI.COMM_WORLD
        if self.lib.raw_open(MPI.__file__.encode()):
            raise OSError("MPI_Allreduce is not in the library of mpi4py")

    @staticmethod
    def _handle(of):
        return ctypes.c_size_t(MPI._handleof(of) & (2**64 - 1))

    def call(self, name, n_calls, x, y, n=None, dtype=None):
        """The collective or transfer with this name in plait, on blocks of n items."""
        dtype = dtype or (MPI.DOUBLE if x.dtype.itemsize == 8 else MPI.FLOAT)
        seconds = self.lib.raw_call(
            name.encode(),
            n_calls,
            ctypes.c_void_p(x.ctypes.data),
            ctypes.c_void_p(y.ctypes.data),
            x.size if n is None else n,
            self._handle(dtype),
            self._handle(MPI.SUM),
            self._handle(self.comm),
            self.comm.rank,
            (self.comm.rank + 1) % self.comm.size,
        )
        if seconds < 0:
            raise RuntimeError(f"MPI's {name} returned an error")
        return seconds

    def allreduce(self, n_calls, x, y):
        """MPI_Allreduce(SUM) over the world."""
        return self.call("allreduce", n_calls, x, y)

    def sendrecv(self, n_calls, x, y):
        """MPI_Sendrecv with the other rank, both ways."""
        return self.call("sendrecv", n_calls, x, y)


def version():
    """The name and version of the MPI library."""
    text = MPI.Get_library_version().strip("\0 \n").splitlines()[0]
    if text.startswith("Open MPI"):
        return text.split(",")[0].replace(" v", " ")
    return "MPICH " + text.split(":")[1].strip() if text.startswith("MPICH") else text


def thread_level():
    """The level that MPI provides, for the table."""
    names = {MPI.THREAD_MULTIPLE: "MULTIPLE", MPI.THREAD_SERIALIZED: "SERIALIZED"}
    return names.get(MPI.Query_thread(), "less")
