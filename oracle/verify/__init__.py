"""Which draft tokens the target accepts."""
