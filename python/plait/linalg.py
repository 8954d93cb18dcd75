"""Dense linear algebra on global matrices that are distributed over a mesh."""

from plait._cholesky import Cholesky, cholesky, potri, potrs
from plait._cond import cond
from plait._eigh import Eigh, eigh, eigvalsh, syevd
from plait._lu import LU, det, inv, lu, lu_solve, slogdet
from plait._matmul import matmul, matrix_norm
from plait._qr import QR, lstsq, qr
from plait._refined import Refined
from plait._solve import solve
from plait._svd import SVD, Polar, polar, svd, svdvals

__all__ = [
    "LU",
    "QR",
    "SVD",
    "Cholesky",
    "Eigh",
    "Polar",
    "Refined",
    "cholesky",
    "cond",
    "det",
    "eigh",
    "eigvalsh",
    "inv",
    "lstsq",
    "lu",
    "lu_solve",
    "matmul",
    "matrix_norm",
    "polar",
    "potri",
    "potrs",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "syevd",
]
