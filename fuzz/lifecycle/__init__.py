"""Driving production parts through stories of commit.lifecycle."""
