"""What a run leaves in reference cycles, and what of this process is never looked through for it.

Production builds workers that refer to themselves, so their tensors outlive a run until
Python looks for cycles. An import leaves 600,000 objects: as long as they are looked
through too, that takes a tenth of a second, and Python waits until a quarter as many are
new: thousands of cases, with more than a thousand old buffers meanwhile. So they are
set aside, and later so is what kernels and late imports leave. The trade: a cycle that
lives when it is set aside is never collected, such as the last worker in a global of the
engine once another takes its place; on a GPU its buffers are lost, once for each setting aside.
"""

from __future__ import annotations

import gc

MANY = 5_000  # objects that survive; they are looked through in far less than a millisecond


def set_aside() -> None:
    """Never look through what lives now."""
    gc.collect()
    gc.freeze()
    gc.collect()  # Python counts what the last search left: without this one it still waits for a quarter of an import


def collect() -> None:
    """Collect what runs left; of what stays, no more than ``MANY`` objects are looked through the next time."""
    gc.collect()
    if len(gc.get_objects(generation=2)) > MANY:
        gc.freeze()
