"""Measures this machine, this engine and its peers, with the same work on both sides of every ratio."""
