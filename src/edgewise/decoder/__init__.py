"""Runs a DecoderSpec: layers as calls of kernels, over a paged KV cache."""
