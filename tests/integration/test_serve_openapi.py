"""The description of the API is true: schemathesis derives good and bad requests from it, and no answer breaks it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.served import running, write_bundle

pytestmark = pytest.mark.integration

# That a tensor's data must fit its shape no JSON schema can say: for the two infer paths a refusal is no lie.
CONFIG = """
[parameters]
name = "words"
version = "1"

[[operations]]
include-path-regex = "/infer$"
checks.positive_data_acceptance.enabled = false
"""


@pytest.mark.parametrize("examples", [15, pytest.param(400, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_answers_keep_to_the_description(tmp_path: Path, examples: int) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG, encoding="utf-8")
    with running(write_bundle(tmp_path / "words"), "--threads", "1") as server:
        command = [Path(sys.executable).with_name("schemathesis"), "--config-file", config, "run"]
        options = ["--max-examples", str(examples), "--phases", "coverage,fuzzing", "--seed", "1", "--no-color"]
        # Loading and unloading change what the other paths answer; they have tests of their own.
        excluded = ["--exclude-path-regex", "load"]
        url = f"{server.url}/openapi.json"
        done = subprocess.run(
            [*command, url, *options, *excluded], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert "Tested: 22" in done.stdout
        assert not server.events("worker ended")
