"""Mutants of recurrence.kda: wrong per-channel gates, and those of the gated delta rule that a KDA kernel has its own
code for. The rest of the rule is the same walk, whose mutants live there."""

from __future__ import annotations

import numpy as np

from fuzz.mutants.delta_rule import SHARED, walking
from oracle.recurrence.approximate import Approximate, exact
from oracle.recurrence.delta_walk import Rules


class _OneDecay(Rules):
    """The first channel's decay fades all of the state."""

    def advance(self, h, k, v, decay, beta):
        first = Approximate(*(np.broadcast_to(n[..., :1], n.shape) for n in (decay.value, decay.error)))
        return super().advance(h, k, v, first, beta)


class _DecayAlongValues(Rules):
    """Columns fade instead of rows, where a state is square."""

    def advance(self, h, k, v, decay, beta):
        if h.shape[-1] != h.shape[-2]:
            return super().advance(h, k, v, decay, beta)
        return super().advance(h * decay[..., None, :], k, v, exact(np.ones(decay.shape)), beta)


class _BoundIgnored(Rules):
    def decay(self, case, a, A_log, dt_bias):
        return -(exact(A_log).exp()[:, None] * (a + dt_bias).softplus())


class _RateOutside(Rules):
    """The rate scales the bounded gate instead of its argument."""

    def decay(self, case, a, A_log, dt_bias):
        if case.gate != "bounded":
            return super().decay(case, a, A_log, dt_bias)
        return exact(A_log).exp()[:, None] * (a + dt_bias).sigmoid() * case.lower_bound


class _StrideOfAHead(Rules):
    """From token to token the gate inputs advance by one number a head, not by one a channel."""

    def decay(self, case, a, A_log, dt_bias):
        flat = a.value.reshape(len(a.value), -1)
        cells, tokens = case.value_heads * case.key_dim, a.shape[1]
        rows = [flat[:, t * case.value_heads : t * case.value_heads + cells] for t in range(tokens)]
        moved = np.stack([row.reshape(len(flat), case.value_heads, case.key_dim) for row in rows], 1)
        return super().decay(case, exact(moved), A_log, dt_bias)


ALSO = (
    "decay_forgotten", "corrects_unfaded", "beta_on_the_value", "keys_not_normalised", "heads_in_turn",
    "bias_forgotten",
    "rate_not_exponentiated", "softplus_ends_early", "accepted_ignored", "accepted_unbounded", "tree_as_chain",
    "split_from_the_start", "null_row_written", "verify_writes_the_pool", "states_one_step_late",
    "slot_offset_in_32_bits", "row_offset_in_32_bits", "output_beyond_its_bound", "state_beyond_its_bound",
)  # fmt: skip

MUTANTS = (
    *(mutant for mutant in SHARED if mutant.name in ALSO),
    walking("one_decay_for_all", "gate_form", "the first key channel's decay is used for all", _OneDecay),
    walking("decay_along_values", "wrong_axis", "value channels fade instead of key channels", _DecayAlongValues),
    walking("bound_ignored", "gate_form", "bounded gates are computed by softplus", _BoundIgnored),
    walking("rate_outside", "gate_form", "the rate scales the bounded gate, not its argument", _RateOutside),
    walking("gate_stride_of_a_head", "wrong_stride", "gate inputs are read with the stride of heads", _StrideOfAHead),
)
