"""Paged attention in Triton: one kernel family for every feature of attnctl.ops.paged.

prefill.py and decode.py hold the kernels, tile.py what they share, cache.py the cache write;
plan.py decides which runs and with which tiles, call.py calls.
"""

from attnctl.kernels.triton.device_checks import check_device as check_device
from attnctl.kernels.triton.launch import Tiles as Tiles
from attnctl.kernels.triton.paged.cache import write_cache as write_cache
from attnctl.kernels.triton.paged.call import paged_attention as paged_attention
from attnctl.kernels.triton.paged.call import prepare as prepare
from attnctl.kernels.triton.paged.call import workspace_size as workspace_size
from attnctl.kernels.triton.paged.plan import Knobs as Knobs
from attnctl.kernels.triton.paged.plan import knobs_for as knobs_for
