"""The shared vocabulary: errors, sampling parameters, requests, events, usage, the decoder's description.

Imports nothing of ours. Everything here is plain data; behaviour lives in the rooms that use it.
"""
