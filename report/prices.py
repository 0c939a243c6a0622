"""The price book: devices and grids with their sources, and which of them the measured machine is."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from report.config import ReportConfig
from testbed.errors import UserError
from testbed.records import Frozen, Machine
from testbed.records.cost import Price

HERE = Path(__file__).resolve().parent
# In an installed package it lies here, in a checkout at the root.
SHIPPED = next(
    (path for path in (HERE / "prices.yaml", HERE.parent / "prices.yaml") if path.is_file()), HERE / "prices.yaml"
)
HOURS_PER_YEAR = 8766.0
GIB = 1024**3
MEMORY_TOLERANCE = 0.15  # a virtual machine shows less memory than it is sold with


class Match(Frozen):
    """What recognises a device: regular expressions on the names, exact cores, memory within 15 %."""

    cpu_model: str | None = None
    gpu: str | None = None
    logical_cores: int | None = None
    memory_gib: float | None = None

    def fits(self, machine: Machine) -> bool:
        """Return whether every field given agrees with the machine; a GPU machine fits by its GPU alone."""
        if self.gpu is not None:
            return len(machine.gpus) == 1 and re.search(self.gpu, machine.gpus[0].name) is not None
        return (
            not machine.gpus
            and self.cpu_model is not None
            and re.search(self.cpu_model, machine.cpu_model) is not None
            and self.logical_cores in {None, machine.logical_cores}
            and (
                self.memory_gib is None
                or abs(machine.memory_bytes / GIB - self.memory_gib) <= MEMORY_TOLERANCE * self.memory_gib
            )
        )


class Device(Frozen):
    """A device type: rented by the hour, or bought and written off over its lifetime."""

    name: str
    kind: Literal["cpu", "gpu", "edge"]
    cores: int = Field(gt=0)
    usd_per_hour: float | None = Field(default=None, gt=0)
    purchase_usd: float | None = Field(default=None, gt=0)
    lifetime_years: float | None = Field(default=None, gt=0)
    source: str
    date: dt.date
    watts_idle: float | None = Field(default=None, ge=0)
    watts_busy: float | None = Field(default=None, gt=0)
    watts_source: str | None = None
    match: Match | None = None

    @model_validator(mode="after")
    def _is_rented_or_bought(self) -> Self:
        bought = self.purchase_usd is not None and self.lifetime_years is not None
        if (self.usd_per_hour is not None) == bought:
            msg = "give usd_per_hour, or purchase_usd with lifetime_years"
            raise ValueError(msg)
        return self

    def hourly_usd(self, usd_per_kwh: float) -> float:
        """Return usd an hour: the rent, or the purchase spread over the lifetime plus the busy watts' electricity."""
        if self.usd_per_hour is not None:
            return self.usd_per_hour
        assert self.purchase_usd is not None
        assert self.lifetime_years is not None
        return self.purchase_usd / (self.lifetime_years * HOURS_PER_YEAR) + (self.watts_busy or 0) / 1000 * usd_per_kwh


class Electricity(Frozen):
    """What a kWh costs where devices are owned."""

    value: float = Field(gt=0)
    source: str
    date: dt.date


class Grid(Frozen):
    """What a kWh emits."""

    gco2e_per_kwh: float = Field(ge=0)
    source: str
    date: dt.date


class PriceBook(Frozen):
    """All prices; ``price`` gives the one that a stage or profile is charged at."""

    usd_per_kwh: Electricity
    grids: dict[str, Grid]
    devices: dict[str, Device]

    def device(self, key: str) -> Device:
        """Return a device; raises UserError that lists the keys there are."""
        if key not in self.devices:
            msg = f"no device {key!r} in the price book; help: one of {', '.join(self.devices)}, or add it to your own"
            raise UserError(msg)
        return self.devices[key]

    def grid(self, key: str) -> Grid:
        """Return a grid; raises UserError that lists the keys there are."""
        if key not in self.grids:
            msg = f"no grid {key!r} in the price book; help: one of {', '.join(self.grids)}, or add it to your own"
            raise UserError(msg)
        return self.grids[key]

    def recognise(self, machine: Machine, *, by_gpu: bool) -> str | None:
        """Return the key of the one device that the machine is, or None: unknown, or more than one fits."""
        fitting = [
            key
            for key, device in self.devices.items()
            if device.match and (device.kind == "gpu") == by_gpu and device.match.fits(machine)
        ]
        return fitting[0] if len(fitting) == 1 else None

    def price(self, config: ReportConfig, machine: Machine, *, use: str, cores: float | None) -> Price:
        """Return what ``cores`` of the machine (None: a whole GPU machine) cost when used for ``use``.

        Args:
            config: names devices by use, and the reference for an unknown machine.
            machine: that was measured.
            use: a profile's name, or ``training``.
            cores: that the work was given.

        Raises:
            UserError: a named device that is not in the book; an unknown GPU machine that was not named.
        """
        named, found = config.devices.get(use), self.recognise(machine, by_gpu=cores is None)
        if named is not None:
            return self._charge(named, "named", cores, f"the experiment file says that the machine is {named}")
        if found is not None:
            return self._charge(found, "matched", cores, f"the machine was recognised as {found}")
        if cores is None:
            gpus = ", ".join(gpu.name for gpu in machine.gpus) or "no GPU that NVML sees"
            msg = f"the GPU machine of {use!r} ({gpus}) is not in the price book; help: name it in report.devices.{use}"
            raise UserError(msg)
        note = (
            f"the machine ({machine.cpu_model}, {machine.logical_cores} cores) is unknown to the price book: "
            f"its measured speed is charged at the price of {config.reference}, core for core"
        )
        return self._charge(config.reference, "projection", cores, note)

    def _charge(
        self, key: str, basis: Literal["matched", "named", "projection"], cores: float | None, note: str
    ) -> Price:
        device = self.device(key)
        share = 1.0 if cores is None else cores / device.cores
        return Price(
            device=key,
            name=device.name,
            basis=basis,
            usd_per_hour=device.hourly_usd(self.usd_per_kwh.value) * share,
            share=share,
            watts_idle=None if device.watts_idle is None else device.watts_idle * share,
            watts_busy=None if device.watts_busy is None else device.watts_busy * share,
            source=device.source,
            date=device.date.isoformat(),
            note=note,
        )


def load_prices(own: Path | None = None) -> PriceBook:
    """Read the price book that ships, with the user's own laid over it key by key.

    Raises:
        UserError: a file that is missing, is not YAML or does not fit; names the file and the field.
    """
    data = _read(SHIPPED)
    for key, value in (_read(own) if own else {}).items():
        data[key] = {**data[key], **value} if key in {"devices", "grids"} and isinstance(value, dict) else value
    try:
        return PriceBook.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        msg = f"{own or SHIPPED}: field {where}: {first['msg']}; help: compare with the price book that ships"
        raise UserError(msg) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        msg = f"{path}: not a readable price book ({error}); help: give a YAML file like the one that ships"
        raise UserError(msg) from error
    if not isinstance(data, dict):
        msg = f"{path}: not a mapping with devices and grids; help: compare with the price book that ships"
        raise UserError(msg)
    return data
