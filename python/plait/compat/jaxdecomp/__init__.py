"""The functions of jaxDecomp 0.3: transforms, transposes and ghost cells of global arrays.

Use ``from plait.compat import jaxdecomp`` in place of ``import jaxdecomp``. Names, order of
arguments, the spectrum's axes (1, 2, 0) and the splits of results are jaxDecomp's. What early
releases and the README had is here, too: pfft3, slice_pad, slice_unpad, strings in config,
autotune.
"""

from plait.compat.jaxdecomp import fft as fft
from plait.compat.jaxdecomp import halo as halo
from plait.compat.jaxdecomp import transpose as transpose
from plait.compat.jaxdecomp import typing as typing
from plait.compat.jaxdecomp._config import Decomposition as _Decomposition
from plait.compat.jaxdecomp._config import HaloCommBackend as HaloCommBackend
from plait.compat.jaxdecomp._config import JAXDecompConfig as JAXDecompConfig
from plait.compat.jaxdecomp._config import TransposeCommBackend as TransposeCommBackend
from plait.compat.jaxdecomp._config import TransposeType as _TransposeType
from plait.compat.jaxdecomp._config import autotune as autotune
from plait.compat.jaxdecomp._config import config as config
from plait.compat.jaxdecomp._config import finalize as finalize
from plait.compat.jaxdecomp._config import get_autotuned_config as get_autotuned_config
from plait.compat.jaxdecomp._config import get_pencil_info as get_pencil_info
from plait.compat.jaxdecomp._config import init as init
from plait.compat.jaxdecomp._config import make_config as make_config
from plait.compat.jaxdecomp._specs import get_fft_output_sharding as get_fft_output_sharding
from plait.compat.jaxdecomp._specs import get_output_specs as get_output_specs
from plait.compat.jaxdecomp._specs import validate_spec_matches_mesh as validate_spec_matches_mesh
from plait.compat.jaxdecomp.fft import fftfreq3d as fftfreq3d
from plait.compat.jaxdecomp.fft import pfft3 as pfft3
from plait.compat.jaxdecomp.fft import pfft3d as pfft3d
from plait.compat.jaxdecomp.fft import pifft3 as pifft3
from plait.compat.jaxdecomp.fft import pifft3d as pifft3d
from plait.compat.jaxdecomp.fft import pirfft3d as pirfft3d
from plait.compat.jaxdecomp.fft import prfft3d as prfft3d
from plait.compat.jaxdecomp.fft import rfftfreq3d as rfftfreq3d
from plait.compat.jaxdecomp.halo import halo_exchange as halo_exchange
from plait.compat.jaxdecomp.halo import slice_pad as slice_pad
from plait.compat.jaxdecomp.halo import slice_unpad as slice_unpad
from plait.compat.jaxdecomp.transpose import transposeXtoY as transposeXtoY
from plait.compat.jaxdecomp.transpose import transposeXtoZ as transposeXtoZ
from plait.compat.jaxdecomp.transpose import transposeYtoX as transposeYtoX
from plait.compat.jaxdecomp.transpose import transposeYtoZ as transposeYtoZ
from plait.compat.jaxdecomp.transpose import transposeZtoX as transposeZtoX
from plait.compat.jaxdecomp.transpose import transposeZtoY as transposeZtoY

_CONSTANTS = {
    name: constant
    for kind in (TransposeCommBackend, HaloCommBackend, _TransposeType, _Decomposition)
    for name, constant in kind.__members__.items()
}
globals().update(_CONSTANTS)

__version__ = "0.3.1"  # the release with this interface

__all__ = [
    "HaloCommBackend",
    "JAXDecompConfig",
    "TransposeCommBackend",
    "autotune",
    "config",
    "fftfreq3d",
    "finalize",
    "get_autotuned_config",
    "get_fft_output_sharding",
    "get_output_specs",
    "get_pencil_info",
    "halo_exchange",
    "init",
    "make_config",
    "pfft3",
    "pfft3d",
    "pifft3",
    "pifft3d",
    "pirfft3d",
    "prfft3d",
    "rfftfreq3d",
    "slice_pad",
    "slice_unpad",
    "transposeXtoY",
    "transposeXtoZ",
    "transposeYtoX",
    "transposeYtoZ",
    "transposeZtoX",
    "transposeZtoY",
    "validate_spec_matches_mesh",
    *_CONSTANTS,
]
