"""Dense linear algebra on global matrices that are distributed over a mesh."""

from plait._cholesky import Cholesky, cholesky, potri, potrs

__all__ = [
    "Cholesky",
    "cholesky",
    "potri",
    "potrs",
]
