"""Turns the events of a run into something for other tools and for people.

Reads ``events.ndjson`` and imports ``oracle`` for explanations, never ``fuzz``.
"""
