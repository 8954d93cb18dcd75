"""MPI's own calls in a C loop, in this process, through c/raw_mpi.c."""

import ctypes

from mpi4py import MPI


class Raw:
    """Loops over blocking MPI calls on NumPy buffers; each returns its seconds."""

    def __init__(self, library):
        self.lib = ctypes.CDLL(library)
        self.lib.raw_allreduce.restype = ctypes.c_double
        self.lib.raw_sendrecv.restype = ctypes.c_double
        if self.lib.raw_open(MPI.__file__.encode()):
            raise OSError("MPI_Allreduce and MPI_Sendrecv are not in the library of mpi4py")

    @staticmethod
    def _handle(of):
        return ctypes.c_size_t(MPI._handleof(of) & (2**64 - 1))

    def _dtype(self, x):
        return self._handle(MPI.DOUBLE if x.dtype.itemsize == 8 else MPI.FLOAT)

    def allreduce(self, n_calls, x, y):
        """MPI_Allreduce(SUM) over the world."""
        arguments = (ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), x.size)
        where = (self._dtype(x), self._handle(MPI.SUM), self._handle(MPI.COMM_WORLD))
        return self._checked(self.lib.raw_allreduce(n_calls, *arguments, *where))

    def sendrecv(self, n_calls, x, y, peer):
        """MPI_Sendrecv with one peer, both ways."""
        arguments = (ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), x.size)
        where = (self._dtype(x), peer, self._handle(MPI.COMM_WORLD))
        return self._checked(self.lib.raw_sendrecv(n_calls, *arguments, *where))

    @staticmethod
    def _checked(seconds):
        if seconds < 0:
            raise RuntimeError("MPI returned an error")
        return seconds


def version():
    """The name and version of the MPI library."""
    text = MPI.Get_library_version().strip("\0 \n").splitlines()[0]
    if text.startswith("Open MPI"):
        return text.split(",")[0].replace(" v", " ")
    return "MPICH " + text.split(":")[1].strip() if text.startswith("MPICH") else text
