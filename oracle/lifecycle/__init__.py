"""The honest model behind commit.lifecycle: tokens, state slots, prefix tree, track buffers, batches, scheduler."""
