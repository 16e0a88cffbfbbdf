"""Real coding agents, from npm and run headless, and the official SDKs against a real server."""
