"""Continues sequences of tokens: scheduling, KV blocks and their reuse, sampling, and the thread that runs the steps."""
