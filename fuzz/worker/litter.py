"""What a run leaves in reference cycles, and what of this process is never looked through for it.

Production builds workers that refer to themselves, so their tensors outlive a run until
Python looks for cycles. An import leaves 600,000 objects: as long as they are looked
through too, that takes a tenth of a second and happens once in thousands of cases,
with more than a thousand old buffers between guards meanwhile. So they are set aside, and
later so is what kernels and late imports leave. The trade: a cycle that
lives when it is set aside is never collected.
"""

from __future__ import annotations

import gc

MANY = 5_000  # objects that are looked through in far less than a millisecond; a run leaves some hundred


def set_aside() -> None:
    """Never look through what lives now."""
    gc.collect()
    gc.freeze()


def collect() -> None:
    """Collect what runs left; of what stays, no more than ``MANY`` objects are looked through the next time."""
    gc.collect()
    if len(gc.get_objects(generation=2)) > MANY:
        gc.freeze()
