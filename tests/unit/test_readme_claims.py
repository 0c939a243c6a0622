"""What the README says of the product is true of it: its experiment, its tree, its options."""

import re
import tomllib
from pathlib import Path

import pytest

from pipeline.experiment import load_experiment
from report.prices import SHIPPED

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TREE = README.split("## The tree")[1].split("```")[1]


def test_the_experiment_of_the_readme_is_valid(tmp_path: Path) -> None:
    block = re.search(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    assert block, "the README shows an experiment"
    path = tmp_path / "tickets.yaml"
    path.write_text(block[1], encoding="utf-8")
    experiment = load_experiment(path)
    assert experiment.dataset.is_file()
    assert experiment.dataset.text_column == "subject"
    assert experiment.report.traffic is not None


@pytest.mark.parametrize("line", TREE.strip().splitlines(), ids=lambda line: line.split()[0])
def test_the_tree_of_the_readme_exists(line: str) -> None:
    name, what = line.split(maxsplit=1)
    assert (ROOT / name).exists()
    assert what


def test_every_package_stands_in_the_readmes_tree() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for package in settings["tool"]["hatch"]["build"]["packages"]:
        assert f"{package}/" in TREE


def test_the_python_that_the_readme_asks_for_is_the_packages() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert f"Python ≥ {settings['project']['requires-python'].removeprefix('>=')}" in README


def test_the_price_book_of_the_readme_is_the_one_that_is_read() -> None:
    assert SHIPPED.read_bytes() == (ROOT / "prices.yaml").read_bytes()
