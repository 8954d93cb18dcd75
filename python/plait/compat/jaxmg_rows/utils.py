"""JAXMg's utilities, which are the same in all releases."""

from plait.compat.jaxmg.utils import JaxMgWarning as JaxMgWarning
from plait.compat.jaxmg.utils import determine_distributed_setup as determine_distributed_setup
from plait.compat.jaxmg.utils import get_mesh_and_spec_from_array as get_mesh_and_spec_from_array
from plait.compat.jaxmg.utils import maybe_real_dtype_from_complex as maybe_real_dtype_from_complex
from plait.compat.jaxmg.utils import random_psd as random_psd
