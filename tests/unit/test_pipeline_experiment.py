from pathlib import Path

import pytest

from pipeline.experiment import load_experiment
from testbed.errors import UserError

SHIPPED = sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml"))


def refusal(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_experiment(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_experiments_that_ship_are_valid_and_named_after_their_file(path: Path) -> None:
    assert load_experiment(path).name == path.stem


def test_the_shortest_experiment_takes_every_default(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ndataset: {source: rows.csv, text_column: question}\n")
    experiment = load_experiment(path)
    assert experiment.dataset.text_column == "question"
    assert experiment.loadtests.slo_s == 0.05
    assert experiment.serve.profiles == "auto"


def test_an_unknown_field_lists_what_is_allowed(tmp_path: Path) -> None:
    message = refusal(tmp_path, "name: mine\ndataset: {source: trec}\ntrain: {student: {layer: [1]}}\n")
    assert "field train.student.layer: unknown; help: allowed here: " in message
    assert "layers" in message


def test_an_unknown_section_lists_the_sections(tmp_path: Path) -> None:
    message = refusal(tmp_path, "name: mine\ndataset: {source: trec}\ntraining: {}\n")
    assert (
        "field training: unknown; help: allowed here: dataset, loadtests, name, quantize, report, serve, train"
        in message
    )


def test_every_wrong_field_is_named_at_once_with_its_value(tmp_path: Path) -> None:
    message = refusal(tmp_path, "name: Mine!\ndataset: {source: trec}\nloadtests: {slo_s: -1}\n")
    assert "field name: " in message
    assert "field loadtests.slo_s: Input should be greater than 0, got -1; help: " in message


def test_a_missing_section_is_named(tmp_path: Path) -> None:
    assert "field dataset: missing; help: add it" in refusal(tmp_path, "name: mine\n")


def test_a_rule_between_fields_is_explained(tmp_path: Path) -> None:
    text = "name: mine\ndataset: {source: trec}\ntrain: {max_length: 128, token_budget: 64}\n"
    assert "token_budget (64) is less than max_length (128)" in refusal(tmp_path, text)


def test_an_unknown_variant_says_what_there_is(tmp_path: Path) -> None:
    text = "name: mine\ndataset: {source: trec}\nquantize: {variants: [student-int3]}\n"
    message = refusal(tmp_path, text)
    assert "student-int3" in message
    assert "fp16" in message


def test_a_wrong_member_of_a_choice_is_named_as_the_file_names_it(tmp_path: Path) -> None:
    message = refusal(tmp_path, "name: mine\ndataset: {source: trec}\nserve: {profiles: [tpu]}\n")
    assert "field serve.profiles.0: Input should be 'cpu', 'edge' or 'gpu', got 'tpu'" in message
    assert "literal[" not in message


def test_an_unknown_field_of_an_optional_section_lists_what_is_allowed(tmp_path: Path) -> None:
    text = "name: mine\ndataset: {source: trec}\nreport: {traffic: {mean_qps: 1, peak_qps: 2, top_qps: 3}}\n"
    assert "field report.traffic.top_qps: unknown; help: allowed here: mean_qps, peak_qps" in refusal(tmp_path, text)


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    text = "name: mine\ndataset: {source: trec}\ntrain: {seed: 1}\ntrain: {seed: 2}\n"
    assert "the key 'train' stands twice" in refusal(tmp_path, text)


def test_a_merged_mapping_may_be_overlaid(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ndataset: {source: trec}\ntrain:\n  <<: {seed: 1}\n  seed: 2\n")
    assert load_experiment(path).train.seed == 2


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "name: [\n", "just words\n"])
def test_what_is_no_experiment_is_refused(tmp_path: Path, text: str) -> None:
    assert "help: compare it with experiments/trec.yaml" in refusal(tmp_path, text)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such experiment file"):
        load_experiment(tmp_path / "absent.yaml")
    with pytest.raises(UserError, match="cannot be read"):
        load_experiment(tmp_path)
