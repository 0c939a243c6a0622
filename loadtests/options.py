"""The locustfile's own command line: one plan, told by options."""

from __future__ import annotations

import argparse
import json
from typing import Protocol

from loadtests.plan import Arrivals, Plan


class OptionGroup(Protocol):
    """What argparse's groups and Locust's have in common."""

    def add_argument(self, *names: str, **settings: object) -> object:
        """Add one option."""


def add_options(own: OptionGroup) -> None:
    """Add the options of one plan; paths stay strings, because a master sends its options to its workers."""
    own.add_argument("--plans", action="store_true", help="read plans (JSON lines) from standard input")
    own.add_argument("--scratch", help="folder that is removed when the plans end, whatever became of the runner")
    own.add_argument("--rate", type=float, default=10.0, help="offered load, queries a second")
    own.add_argument("--duration", type=float, default=10.0, help="seconds of arrivals")
    own.add_argument("--seed", type=int, default=1, help="draws arrivals and texts")
    own.add_argument("--texts", help="file of queries: JSONL, CSV or plain text")
    own.add_argument("--protocol", default="oip", choices=["oip", "hf", "template"], help="form of the request")
    own.add_argument("--model", default="model", help="model name in the Open Inference Protocol's path")
    own.add_argument("--template", help="YAML with path, body, headers, expect: any other server")
    own.add_argument("--scenario", default="Server", choices=["Server", "SingleStream", "ClosedLoop"])
    own.add_argument("--in-flight", type=int, default=1, help="users of a closed loop")
    own.add_argument("--arrivals", default="poisson", help="poisson, uniform, gamma, curve, steps or trace")
    own.add_argument("--cv", type=float, default=1.0, help="coefficient of variation of gamma's gaps")
    own.add_argument("--arrivals-file", help="CSV of a curve, or a trace")
    own.add_argument("--steps", type=json.loads, default=(), help="JSON list of multiples of the rate")
    own.add_argument("--query-timeout", type=float, default=2.0, help="seconds until a query is given up")
    own.add_argument("--rows", default="rows.parquet", help="Parquet file of raw rows")


def plan_of(options: argparse.Namespace) -> Plan:
    """Return the plan that the options tell; raises pydantic's ValidationError."""
    arrivals = {"process": options.arrivals, "cv": options.cv, "file": options.arrivals_file, "steps": options.steps}
    return Plan.model_validate(
        {
            "url": options.host,
            "protocol": options.protocol,
            "model": options.model,
            "template": options.template,
            "texts_file": options.texts,
            "scenario": options.scenario,
            "arrivals": Arrivals.model_validate(arrivals),
            "rate_qps": options.rate if options.scenario == "Server" else None,
            "duration_s": options.duration,
            "users": options.in_flight,
            "seed": options.seed,
            "timeout_s": options.query_timeout,
            "rows_file": options.rows,
        }
    )
