"""This machine's models and keys: what is there, what could be, how to be rid of it."""
