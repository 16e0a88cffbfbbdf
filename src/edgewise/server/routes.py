"""The generating endpoints."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from edgewise.server.formats import ChatFormat, CompletionFormat
from edgewise.server.generate import generate
from edgewise.server.messages_format import MessagesFormat, count_tokens
from edgewise.server.options import ServerOptions


def generation_router(options: ServerOptions) -> APIRouter:
    router = APIRouter()
    chat = ChatFormat(trust_template=options.trust_request_chat_template)
    completion = CompletionFormat(options.max_choices)
    message = MessagesFormat()

    @router.post("/v1/chat/completions")
    @router.post("/chat/completions")
    async def chat_completions(request: Request) -> Response:
        return await generate(request, chat)

    @router.post("/v1/completions")
    @router.post("/completions")
    async def completions(request: Request) -> Response:
        return await generate(request, completion)

    @router.post("/v1/messages")
    async def messages(request: Request) -> Response:
        return await generate(request, message)

    router.add_api_route("/v1/messages/count_tokens", count_tokens, methods=["POST"])

    return router
