"""What every HTTP server of ours shares: listening and draining, bodies with limits, keys, error shapes, event streams.

Knows the APIs' shapes (protocols/) and nothing of what answers: an engine, or another server.
"""
