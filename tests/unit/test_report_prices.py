"""The price book: what ships is whole, machines are recognised or unknown, and a user's own book is laid over it."""

import pytest
from pydantic import ValidationError

from report.config import ReportConfig, Traffic
from report.prices import load_prices
from testbed.errors import UserError
from testbed.records import Gpu
from tests.records_for_report import MACHINE

SAPPHIRE = "Intel(R) Xeon(R) Platinum 8488C"


def machine(**changes):
    return MACHINE.model_copy(update=changes)


def gpu_machine(name):
    return machine(gpus=(Gpu(name=name, memory_bytes=16 * 10**9, driver="570"),))


def test_the_book_that_ships_has_a_dozen_devices_with_sources():
    book = load_prices()
    assert len(book.devices) >= 12
    assert {device.kind for device in book.devices.values()} == {"cpu", "gpu", "edge"}
    assert all(device.source and device.watts_source for device in book.devices.values())


def test_a_cloud_machine_is_told_by_model_cores_and_memory():
    book = load_prices()
    seen = machine(cpu_model=SAPPHIRE, logical_cores=2, memory_bytes=int(3.7 * 2**30))
    assert book.recognise(seen, by_gpu=False) == "aws-c7i-large"
    roomy = machine(cpu_model=SAPPHIRE, logical_cores=2, memory_bytes=int(7.6 * 2**30))
    assert book.recognise(roomy, by_gpu=False) == "aws-m7i-large"
    assert book.recognise(machine(cpu_model=SAPPHIRE, logical_cores=96), by_gpu=False) is None


def test_a_gpu_machine_is_told_by_its_gpu():
    book = load_prices()
    assert book.recognise(gpu_machine("Tesla T4"), by_gpu=True) == "aws-g4dn-xlarge"
    assert book.recognise(gpu_machine("NVIDIA L40S"), by_gpu=True) is None
    assert book.recognise(gpu_machine("Tesla T4"), by_gpu=False) is None


def test_an_unknown_cpu_is_a_projection_and_an_unknown_gpu_is_refused():
    book = load_prices()
    price = book.price(ReportConfig(), machine(), use="cpu", cores=1)
    assert price.basis == "projection"
    assert price.usd_per_hour == pytest.approx(0.08925 / 2)
    with pytest.raises(UserError, match=r"NVIDIA L40S.*report\.devices\.gpu"):
        book.price(ReportConfig(), gpu_machine("NVIDIA L40S"), use="gpu", cores=None)


def test_a_named_device_is_charged_as_named():
    price = load_prices().price(ReportConfig(devices={"edge": "raspberry-pi-5-8gb"}), machine(), use="edge", cores=4)
    hours = 3 * 8766
    assert price.basis == "named"
    assert price.usd_per_hour == pytest.approx(80 / hours + 0.007 * 0.165)


def test_an_own_book_is_laid_over_the_one_that_ships(tmp_path):
    own = tmp_path / "my.yaml"
    own.write_text(
        "devices:\n  my-box: {name: mine, kind: cpu, cores: 8, usd_per_hour: 0.4, source: bill, date: 2026-01-01}\n"
    )
    book = load_prices(own)
    assert "aws-c7i-large" in book.devices
    price = book.price(ReportConfig(devices={"cpu": "my-box"}), machine(), use="cpu", cores=2)
    assert price.usd_per_hour == pytest.approx(0.1)
    assert price.watts_busy is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("devices: {x: {name: x}}", r"devices\.x\.kind"),
        ("devices: {x: {name: x, kind: cpu, cores: 1, source: s, date: 2026-01-01}}", "give usd_per_hour"),
        ("- a list", "not a mapping"),
        ("a: [", "not a readable price book"),
        ("devices: {aws-c7i-large: 3}", r"devices\.aws-c7i-large"),
    ],
)
def test_a_damaged_book_is_named(tmp_path, text, message):
    own = tmp_path / "my.yaml"
    own.write_text(text)
    with pytest.raises(UserError, match=message):
        load_prices(own)


def test_unknown_keys_list_what_there_is():
    book = load_prices()
    with pytest.raises(UserError, match="aws-c7i-large"):
        book.device("nothing")
    with pytest.raises(UserError, match="world"):
        book.grid("moon")


@pytest.mark.parametrize("traffic", [{"mean_qps": 0, "peak_qps": 1}, {"mean_qps": 5, "peak_qps": 1}])
def test_traffic_of_nothing_or_below_its_mean_is_refused(traffic):
    with pytest.raises(ValidationError):
        Traffic(**traffic)


def test_every_entry_that_ships_says_where_it_was_seen_again_or_that_it_was_not():
    book = load_prices()
    said = [device.source for device in book.devices.values()]
    said += [device.watts_source for device in book.devices.values()]
    said += [grid.source for grid in book.grids.values()] + [book.usd_per_kwh.source]
    assert all("found in " in source or "not confirmed" in source or "same page" in source for source in said)
