"""Every answer that is not a result: one tree, each error owns its status and its reason.

ServeError
├── Internal (500 internal): a fault of ours that nothing foresaw
├── InvalidRequest (400 invalid_request): the body is not what the protocol asks for
│   ├── Unauthorized (401 unauthorized)
│   ├── ForeignOrigin (403 foreign_origin): a page of another site asks to load or unload
│   ├── NotFound (404 not_found): no such model, version or path
│   ├── MethodNotAllowed (405 method_not_allowed)
│   ├── TooLarge (413 too_large): body, rows, text or weight over a limit
│   └── UnsupportedEncoding (415 unsupported_encoding)
├── Shed (429 or 503): refused on purpose; ``Retry-After`` says when to come back
│   ├── QueueFull (429 queue_full)
│   ├── DeadlineAtRisk (503 deadline): the model of batch time says it cannot be in time
│   ├── OutOfMemory (503 out_of_memory): the batch found no memory, text by text neither
│   └── Unavailable (503 draining | not_ready | unloaded)
└── BackendError (500)
    ├── BackendFailed (500 backend_failed): ONNX Runtime raised
    └── NonFiniteOutput (500 non_finite_output): NaN or infinity in the logits

What keeps a server from starting at all is a testbed.errors.UserError.
"""

from __future__ import annotations

import math
from http import HTTPStatus


class ServeError(Exception):
    """Base of all: the message goes to the client as ``{"error": message, "reason": reason}``.

    Attributes:
        status: HTTP status of the answer.
        reason: one word for metrics, logs and the answer's body.
        retry_after_s: whole seconds for ``Retry-After``; None where trying again would not help.
    """

    status: int = HTTPStatus.INTERNAL_SERVER_ERROR
    reason: str = "internal"
    retry_after_s: int | None = None


class Internal(ServeError):  # noqa: N818 - named for what happened
    """A fault of ours that nothing foresaw: its traceback is in the log, not in the answer."""


class InvalidRequest(ServeError):  # noqa: N818 - named for what happened
    """The client can mend it."""

    status = HTTPStatus.BAD_REQUEST
    reason = "invalid_request"


class Unauthorized(InvalidRequest):
    """No key, or not one of ours."""

    status = HTTPStatus.UNAUTHORIZED
    reason = "unauthorized"


class ForeignOrigin(InvalidRequest):
    """A browser sent it on behalf of a page that is not ours."""

    status = HTTPStatus.FORBIDDEN
    reason = "foreign_origin"


class NotFound(InvalidRequest):
    """No such model, version or path."""

    status = HTTPStatus.NOT_FOUND
    reason = "not_found"


class MethodNotAllowed(InvalidRequest):
    """The path exists, this method on it does not.

    Args:
        message: what the client reads.
        allowed: the methods that do, as the ``Allow`` header has them.
    """

    status = HTTPStatus.METHOD_NOT_ALLOWED
    reason = "method_not_allowed"

    def __init__(self, message: str, *, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class TooLarge(InvalidRequest):
    """Over a limit that no waiting would change."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    reason = "too_large"


class UnsupportedEncoding(InvalidRequest):
    """A Content-Encoding other than identity, gzip and deflate."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    reason = "unsupported_encoding"


class Shed(ServeError):  # noqa: N818 - named for what happened
    """Refused on purpose.

    Args:
        message: what the client reads.
        wait_s: seconds after which it may fit; rounded up to whole seconds, at least 1.
    """

    status = HTTPStatus.SERVICE_UNAVAILABLE

    def __init__(self, message: str, *, wait_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = max(1, math.ceil(wait_s))


class QueueFull(Shed):
    """The queue holds all the tokens that it may."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    reason = "queue_full"


class DeadlineAtRisk(Shed):
    """By the model of batch time the answer would come too late."""

    reason = "deadline"


class OutOfMemory(Shed):
    """There was no memory for the text, not even alone, or for the request."""

    reason = "out_of_memory"


class Unavailable(Shed):
    """Draining, not warmed up yet, or the model was unloaded.

    Args:
        message: what the client reads.
        reason: ``draining``, ``not_ready`` or ``unloaded``.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class BackendError(ServeError):
    """The model did not give a usable answer."""


class BackendFailed(BackendError):  # noqa: N818 - named for what happened
    """ONNX Runtime raised."""

    reason = "backend_failed"


class NonFiniteOutput(BackendError):  # noqa: N818 - named for what happened
    """NaN or infinity in the logits: an answer made of them would be a lie."""

    reason = "non_finite_output"


class ClientLeft(Exception):  # noqa: N818 - not an error of ours: nobody reads an answer
    """The connection was closed before the answer was ready."""
