"""The committed JSON Schemas are those of the records, and records fit them."""

import json
from pathlib import Path

import jsonschema
import pytest

from report.build import assess
from report.config import ReportConfig
from report.evidence import gather
from report.schemas import record_kinds, schema_text
from tests import records_for_report as made

COMMITTED = Path(__file__).parents[2] / "docs" / "schemas"
REMEDY = "run `python -m report.schemas docs/schemas` and look at what changed for readers of old records"


@pytest.mark.parametrize("kind", record_kinds(), ids=lambda kind: kind.__name__)
def test_committed_schema_is_the_records(kind):
    assert (COMMITTED / f"{kind.__name__}.json").read_text(encoding="utf-8") == schema_text(kind), REMEDY


def test_no_schema_is_left_over():
    assert {path.stem for path in COMMITTED.glob("*.json")} == {kind.__name__ for kind in record_kinds()}


def test_records_fit_their_schema(tmp_path):
    run = made.write_run(tmp_path)
    records = [made.training_run("teacher", 1.0), made.manifest(), assess(ReportConfig(), gather(run))]
    records += [made.capacity("student-int8", "cpu", (1.0, 2.0)), made.load_run("student-int8", "cpu", 10.0, 0.01)]
    for record in records:
        schema = json.loads((COMMITTED / f"{type(record).__name__}.json").read_text(encoding="utf-8"))
        jsonschema.validate(json.loads(record.model_dump_json()), schema)
