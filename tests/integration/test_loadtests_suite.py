"""The whole suite on a real bundle and the real server: records on disk, proof, counters, nothing half-written."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.config import LoadTestConfig
from loadtests.suite import run_suite
from testbed.bundle import Bundle
from testbed.errors import UserError
from testbed.records import Capacity, LoadTestRun, file_sha256, load

pytestmark = pytest.mark.integration

QUICK = LoadTestConfig(
    slo_s=0.25,  # the tests' machine does other work too
    scenarios=("SingleStream", "MultiStream", "Offline", "Server"),
    single_stream_s=0.5,
    probe_s=0.5,
    max_probes=4,
    resolution=0.3,
    confirm_s=1,
    confirm_max_s=3,
    curve_fractions=(0.5,),
    curve_variants=1,
    idle_s=0.2,
)


@pytest.fixture
def texts_file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("what is the capital of france ?\nwho wrote hamlet ?\nhow far is the moon from the earth ?\n")
    return path


def test_a_variant_is_load_tested_and_everything_is_accounted_for(
    tiny_bundle: Path, texts_file: Path, tmp_path: Path
) -> None:
    manifest = Bundle(tiny_bundle).manifest
    variant = manifest.variants[-1]
    config = QUICK.model_copy(update={"variants": (variant.name,), "texts_file": texts_file})
    folder = tmp_path / "loads"
    records = run_suite(config, bundle=tiny_bundle, profiles=["cpu"], folder=folder)
    on_disk = [load(path) for path in sorted(folder.glob("*.json"))]
    assert len(on_disk) == len(records) + 1  # the null server's run is on disk too
    runs = {record.scenario: record for record in records if isinstance(record, LoadTestRun)}
    assert set(runs) == {"SingleStream", "MultiStream", "Offline", "Server"}
    for run in runs.values():
        assert file_sha256(folder / run.rows_file) == run.rows_sha256
        assert run.parents["bundle"] == file_sha256(tiny_bundle / "manifest.json")
        assert run.proof is not None
        assert run.proof.file_sha256 in variant.files.values()
        assert run.server is not None
        assert run.server.loaded.cpu_s > 0
        assert run.server.mean_batch_texts is not None
        checks = {check.name: check.passed for check in run.checks}
        assert checks["proof"]
        assert checks["server_counted"]
        assert not run.errors
    assert runs["SingleStream"].timings["total"] > 0
    (capacity,) = (record for record in records if isinstance(record, Capacity))
    assert capacity.max_qps_at_slo is not None, capacity.reason
    assert (folder / capacity.confirmation[0]).is_file()


def test_an_unknown_variant_is_refused_with_the_names_there_are(tiny_bundle: Path, tmp_path: Path) -> None:
    config = LoadTestConfig(variants=("student-int2",))
    with pytest.raises(UserError, match=r"no 'student-int2'.*help: one of .*student-"):
        run_suite(config, bundle=tiny_bundle, profiles=["cpu"], folder=tmp_path / "loads")
    assert not (tmp_path / "loads").exists()


def test_a_bundle_without_texts_beside_it_is_refused(tiny_bundle: Path, tmp_path: Path) -> None:
    config = LoadTestConfig(texts_file=tmp_path / "none.txt")
    with pytest.raises(UserError, match=r"none\.txt: no texts to send; help:"):
        run_suite(config, bundle=tiny_bundle, profiles=["cpu"], folder=tmp_path / "loads")
    assert not (tmp_path / "loads").exists()
