"""A stand-in for an engine as a program of its own: `python engine_program.py --port N`, with a switch for each way to misbehave.

Arguments it does not know are ignored, so that it can be started as any engine is.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Answers(BaseHTTPRequestHandler):
    options: argparse.Namespace
    num_asked = 0

    def do_GET(self) -> None:
        if self.path == "/health":
            self._say({"status": "ok"})
        elif self.path == "/v1/models":
            self._say({"object": "list", "data": [{"id": self.options.model, "max_model_len": 4096}]})
        else:
            self._say({"error": {"message": "no such path"}}, 404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path != "/v1/chat/completions":
            self._say({"error": {"message": "no such path"}}, 404)
            return
        Answers.num_asked += 1
        if self.options.broken_model:
            self._say({"error": {"message": "no kernel image"}}, 500)
            return
        if self.options.silent_model:
            time.sleep(3600)
        message = {"role": "assistant", "content": f"from {os.getpid()}"}
        self._say(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": self.options.model,
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        )
        if Answers.num_asked == self.options.die_after:
            print("out of memory, it says", flush=True)
            os._exit(7)

    def _say(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", "--served-model-name", default="stand-in")
    parser.add_argument("--slow-start-s", type=float, default=0.0)
    parser.add_argument("--die-at-start", action="store_true")
    parser.add_argument("--die-after", type=int, default=-1)
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--never-answer", action="store_true")
    parser.add_argument("--broken-model", action="store_true")
    parser.add_argument("--silent-model", action="store_true")
    parser.add_argument("--worker", action="store_true", help="have a child that would outlive us")
    Answers.options = options = parser.parse_known_args()[0]
    print(f"loading {options.model}", flush=True)
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.die_at_start:
        print("\x1b[31mthe weights are of another size\x1b[0m", flush=True)
        sys.exit(3)
    if options.worker:
        worker = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
        print(f"worker {worker.pid}", flush=True)
    time.sleep(3600 if options.never_answer else options.slow_start_s)
    ThreadingHTTPServer(("127.0.0.1", options.port), Answers).serve_forever()


if __name__ == "__main__":
    main()
