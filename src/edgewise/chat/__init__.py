"""Chat templates: conversations to prompts and tokens. Imports core and text."""

from edgewise.chat.history import Capabilities
from edgewise.chat.template import ChatTemplate, RenderedPrompt, encode_prompt

__all__ = ["Capabilities", "ChatTemplate", "RenderedPrompt", "encode_prompt"]
