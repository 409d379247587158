"""Web server of `pertoken top --web`: the screens for browsers, refused to pages of other sites."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address

from aiohttp import web
from textual_serve.server import Server

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_LINK = re.compile(r"<link\b[^>]*href=\"(https?:[^\"]*)\"[^>]*>\s*")
_FOCUS = """<script>
  // Keys reach the screens without a click, as soon as the terminal exists.
  addEventListener("load", function focusTerminal() {
    const area = document.querySelector(".xterm-helper-textarea");
    if (area) area.focus();
    else requestAnimationFrame(focusTerminal);
  });
</script>
</head>"""
_POLICY = "style-src 'self' 'unsafe-inline'; font-src 'self' data:; frame-ancestors 'none'"


class ScreenServer(Server):
    """Web server of the screens on a port of one address of this host.

    A page of another site that a browser of this host shows could open the screens: by its own script (refused by its
    Origin), or under a domain name that resolves to the address (refused by its Host).
    """

    def __init__(self, command: str, host: str, port: int) -> None:
        super().__init__(command, host=host, port=port, title="pertoken")
        host_names = [host, "localhost"] if IPv4Address(host).is_loopback else [host]
        names = [f"{name}:{port}" for name in host_names] + (host_names if port == 80 else [])
        self._hosts = frozenset(names)
        self._origins = frozenset(f"http://{name}" for name in names)

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()

        @web.middleware
        async def own_pages_only(request: web.Request, handler: Handler) -> web.StreamResponse:
            origin = request.headers.get("Origin")
            if request.headers.get("Host") not in self._hosts or (origin is not None and origin not in self._origins):
                raise web.HTTPForbidden(text=f"Only for pages of {self.public_url}: open that address.\n")
            return await handler(request)

        app.middlewares.append(own_pages_only)
        return app

    async def handle_index(self, request: web.Request) -> web.Response:
        """Return the page without resources of other hosts."""
        page = await super().handle_index(request)
        assert isinstance(page, web.Response)
        own_url = f"{self.public_url}/"
        text = _LINK.sub(lambda link: link[0] if link[1].startswith(own_url) else "", page.text or "")
        page.text = text.replace("</head>", _FOCUS, 1)
        page.headers["Content-Security-Policy"] = _POLICY
        page.headers["Referrer-Policy"] = "no-referrer"
        return page
