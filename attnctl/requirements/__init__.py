"""Small named rules over a machine and a layer, of which a backend's declaration is a list.

Each factory returns a Rule. A rule looks at the machine, at the layer, or at both, and answers in
a Finding, or None where the layer does not raise the question. All rules run, always.
"""

from attnctl.requirements.flash import (
    flash_head_size as flash_head_size,
)
from attnctl.requirements.flash import (
    flash_kernel as flash_kernel,
)
from attnctl.requirements.flash import (
    flash_kv_cache_dtype as flash_kv_cache_dtype,
)
from attnctl.requirements.flash import (
    flash_sinks as flash_sinks,
)
from attnctl.requirements.flash import (
    flash_version as flash_version,
)
from attnctl.requirements.layers import (
    block_size as block_size,
)
from attnctl.requirements.layers import (
    compute_dtypes as compute_dtypes,
)
from attnctl.requirements.layers import (
    features as features,
)
from attnctl.requirements.layers import (
    head_sizes as head_sizes,
)
from attnctl.requirements.layers import (
    kv_cache_dtypes as kv_cache_dtypes,
)
from attnctl.requirements.layers import (
    mla_dims as mla_dims,
)
from attnctl.requirements.layers import (
    operation as operation,
)
from attnctl.requirements.layers import (
    topk as topk,
)
from attnctl.requirements.machines import (
    capability as capability,
)
from attnctl.requirements.machines import (
    device_dtype as device_dtype,
)
from attnctl.requirements.machines import (
    fp8_hardware as fp8_hardware,
)
from attnctl.requirements.machines import (
    gfx as gfx,
)
from attnctl.requirements.machines import (
    isa as isa,
)
from attnctl.requirements.machines import (
    package as package,
)
from attnctl.requirements.machines import (
    platform as platform,
)
from attnctl.requirements.machines import (
    shared_memory as shared_memory,
)
from attnctl.requirements.machines import (
    triton as triton,
)
from attnctl.requirements.rule import (
    Rule as Rule,
)
from attnctl.requirements.rule import (
    Subject as Subject,
)
