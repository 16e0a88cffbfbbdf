"""The chat page and its web search."""
