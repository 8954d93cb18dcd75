"""JAXMg's utilities that exist in releases from 1.0 on."""

from plait.compat.jaxmg.utils import JaxMgWarning as JaxMgWarning
from plait.compat.jaxmg.utils import get_mesh_and_spec_from_array as get_mesh_and_spec_from_array
from plait.compat.jaxmg.utils import maybe_real_dtype_from_complex as maybe_real_dtype_from_complex
from plait.compat.jaxmg.utils import random_psd as random_psd
