"""How a query looks on the wire, and what counts as an answer to it: OIP, the Hugging Face form, or any template."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from testbed.errors import UserError

TEXT, TEXTS = "{{text}}", "{{texts}}"
REASON = re.compile(rb'"reason":\s*"([a-z_]+)"')  # why a server that tells it refused a query


@dataclass(frozen=True)
class WireForm:
    """One protocol's request.

    Attributes:
        path: of the POST.
        body: the texts of one query to the request's body.
        expect: bytes that a right answer's body holds; an answer without them is an error.
        headers: of the request.
    """

    path: str
    body: Callable[[Sequence[str]], bytes]
    expect: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})

    def fault(self, status: int, payload: bytes) -> str | None:
        """Return what is wrong with a response, or None for an answer: errors never count as answers."""
        if status == HTTPStatus.OK:
            return None if self.expect in payload else "not_an_answer"
        reason = REASON.search(payload)
        return f"http_{status}:{reason.group(1).decode()}" if reason else f"http_{status}"


class Template(BaseModel):
    """A request to any server, as a YAML file.

    Attributes:
        path: of the POST.
        body: the request's body, with ``{{text}}`` where the JSON string of the text goes (or ``{{texts}}`` for the
            JSON list of all texts of the query).
        headers: of the request.
        expect: a piece of a right answer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(pattern="^/")
    body: str
    headers: dict[str, str] = Field(default_factory=lambda: {"Content-Type": "application/json"})
    expect: str = ""


def wire_form(protocol: Literal["oip", "hf", "template"], *, model: str, template: Path | None) -> WireForm:
    """Return the request form of a protocol.

    Raises:
        UserError: a template that is missing or does not fit.
    """
    if protocol == "oip":
        return WireForm(f"/v2/models/{model}/infer", _oip_body, b'"outputs"')
    if protocol == "hf":
        return WireForm("/", _hf_body, b'"score"')
    if template is None:
        msg = "protocol 'template' needs a file; help: --template FILE with path, body and expect"
        raise UserError(msg)
    return _from_template(read_template(template))


def read_template(path: Path) -> Template:
    """Return the template of a YAML file; raises UserError."""
    try:
        found = Template.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        msg = f"{path}: field {where}: {first['msg']}; help: YAML with path, body, and optionally headers and expect"
        raise UserError(msg) from error
    except (OSError, yaml.YAMLError) as error:
        msg = f"{path}: cannot be read ({' '.join(str(error).split())}); help: YAML with path and body"
        raise UserError(msg) from error
    if TEXT not in found.body and TEXTS not in found.body:
        msg = f"{path}: the body has no place for the text; help: write {TEXT} where its JSON string goes"
        raise UserError(msg)
    return found


def _from_template(template: Template) -> WireForm:
    def body(texts: Sequence[str]) -> bytes:
        filled = template.body.replace(TEXTS, json.dumps(list(texts))).replace(TEXT, json.dumps(texts[0]))
        return filled.encode()

    return WireForm(template.path, body, template.expect.encode(), template.headers)


def _oip_body(texts: Sequence[str]) -> bytes:
    tensor = {"name": "text", "shape": [len(texts)], "datatype": "BYTES", "data": list(texts)}
    return json.dumps({"inputs": [tensor]}).encode()


def _hf_body(texts: Sequence[str]) -> bytes:
    return json.dumps({"inputs": texts[0] if len(texts) == 1 else list(texts)}).encode()
