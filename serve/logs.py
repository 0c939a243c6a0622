"""One JSON object a line on standard error; standard output stays empty."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

import orjson


class JsonLines(logging.Formatter):
    """A record as JSON: time, level, logger, process, message, the figures given as ``extra``, and a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": os.getpid(),
            "message": record.getMessage(),
        }
        line.update(getattr(record, "figures", {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def log_to_stderr() -> None:
    """Send what every library logs to standard error. A log that cannot be written (a full disk) stops nothing."""
    logging.raiseExceptions = False
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[stream], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
