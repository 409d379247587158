"""A receiver of chat messages for the machine: appends the JSON of each POST to /opt/engine/posts, a line each."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

POSTS = Path("/opt/engine/posts")


class Handler(BaseHTTPRequestHandler):
    """Takes every POST."""

    def do_POST(self) -> None:
        """Store the message."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with POSTS.open("a") as file:
            file.write(json.dumps(json.loads(body)) + "\n")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", 9000), Handler).serve_forever()
