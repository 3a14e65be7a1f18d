"""What a round leaves behind: states, checkpoints, lengths, slots, and the order of it."""
