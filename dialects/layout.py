"""The layout algebra: who holds which element of a tile, and where it lies in shared memory."""

from .shared_layout import SharedLayout, Swizzle, TmaForm, common_vector
from .tv_layout import WARP, LayoutError, Mode, TVLayout, conversion_scope, merge_modes, split_modes, sumset

__all__ = [
    "WARP",
    "LayoutError",
    "Mode",
    "SharedLayout",
    "Swizzle",
    "TVLayout",
    "TmaForm",
    "common_vector",
    "conversion_scope",
    "merge_modes",
    "split_modes",
    "sumset",
]
