"""Serves a run's page on the loopback address and has it reload when a stage ends."""

from __future__ import annotations

import html
import http.server
from functools import partial
from pathlib import Path

from testbed.errors import UserError

EVERY_S = 2
PAGE = "/report/index.html"
STAGES = {
    "dataset": "dataset/record.json",
    "teacher": "teacher/record.json",
    "student": "student/record.json",
    "bundle": "bundle/manifest.json",
    "load tests": "loads",
    "report": "report/index.html",
}
RELOAD = """
<script>
let seen = null;
setInterval(async () => {
  const stamp = await fetch("/stamp").then((answer) => answer.text()).catch(() => seen);
  if (seen !== null && stamp !== seen) location.reload();
  seen = stamp;
}, %d);
</script>
"""


class Dashboard(http.server.ThreadingHTTPServer):
    """A server of one run: ``/report/index.html`` is the report, or what is done so far; then the run's files.

    Args:
        run: the run's folder.
        port: on 127.0.0.1; 0 takes a free one.

    Raises:
        UserError: no such folder, or the port is in use.
    """

    daemon_threads = True

    def __init__(self, run: Path, *, port: int = 0) -> None:
        if not run.is_dir():
            msg = f"{run}: no such run; help: start one with `breakeven run EXPERIMENT.yaml`"
            raise UserError(msg)
        self.run = run
        try:
            super().__init__(("127.0.0.1", port), partial(_Handler, directory=str(run)))
        except OSError as error:
            msg = f"port {port}: {error.strerror}; help: name another with --port"
            raise UserError(msg) from error

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}/"


def stamp(run: Path) -> str:
    """Return a text that changes when a stage ends: the newest change of each stage's last file."""
    return " ".join(str(_changed_ns(run / path)) for path in STAGES.values())


def waiting_page(run: Path) -> str:
    """Return a page that says which stages have ended, for a run without a report yet."""
    lines = "".join(
        f"<li>{html.escape(stage)}: {'done' if _changed_ns(run / path) else 'not yet'}</li>"
        for stage, path in STAGES.items()
    )
    name = html.escape(run.name)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
        f'<body style="font: 1rem/1.6 system-ui; max-width: 40rem; margin: 3rem auto; color-scheme: light dark">'
        f"<h1>{name}</h1><p>The report is written when the last stage ends.</p><ul>{lines}</ul>"
    )


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Adds the page that reloads itself, and the stamp it asks for."""

    server: Dashboard

    def do_GET(self) -> None:
        if self.path == "/stamp":
            self._send(stamp(self.server.run), "text/plain")
        elif self.path == "/":
            self.send_response(302)
            self.send_header("Location", PAGE)
            self.end_headers()
        elif self.path == PAGE:
            page = self.server.run / "report" / "index.html"
            text = page.read_text(encoding="utf-8") if page.is_file() else waiting_page(self.server.run)
            self._send(text + RELOAD % (EVERY_S * 1000), "text/html")
        else:
            super().do_GET()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 — the library's name
        """Say nothing: the terminal belongs to the run."""

    def _send(self, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)


def _changed_ns(path: Path) -> int:
    if path.is_dir():
        return max((each.stat().st_mtime_ns for each in path.glob("*.json")), default=0)
    return path.stat().st_mtime_ns if path.exists() else 0
