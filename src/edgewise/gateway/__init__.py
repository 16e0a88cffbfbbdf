"""One address in front of many engines: upstream kinds, routing, shaping, forwarding, supervision. Speaks HTTP only."""
