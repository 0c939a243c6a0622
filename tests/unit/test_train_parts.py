"""The parts of a training step, each against what it should give by definition."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from testbed.dataset import Split
from testbed.errors import UserError
from testbed.records import Energy, Usage
from testbed.tokenization import TextTokenizer
from tests.tiny import make_rows, write_checkpoint
from train import objective, precision
from train.clock import PARTS, StepClock
from train.config import StudentConfig, TrainConfig
from train.feed import balanced_weights
from train.ledger import Prediction
from train.loader import Batch, BatchReader, load
from train.loop import parameter_groups, rate_factor
from train.model import layer_stack, load_classifier, max_positions, student_of
from train.operators import quick
from train.phases import Phases, add, together
from train.precision import Precision, choose
from train.probe import BatchCost, saved_bytes, step_cost
from train.processes import leave
from train.tokens import TokenFile, encode, write_tokens
from train.vocabulary import Vocabulary

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"), num_layers=3)


@pytest.fixture
def tokens(tmp_path: Path, checkpoint: Path) -> TokenFile:
    rows = make_rows(40)
    split = Split([row["text"] for row in rows], [index % 3 for index in range(40)])
    return write_tokens(
        tmp_path / "train", encode(split, TextTokenizer(checkpoint / "tokenizer.json", max_length=16)), split.labels
    )


def test_tokens_are_read_back_from_the_mapped_file(tokens: TokenFile, checkpoint: Path) -> None:
    tokenizer = TextTokenizer(checkpoint / "tokenizer.json", max_length=16)
    assert isinstance(tokens.ids, np.memmap)
    assert [tokens.text(index).tolist() for index in range(40)] == tokenizer.encode_batch(
        [row["text"] for row in make_rows(40)]
    )


def test_a_batch_is_padded_to_its_longest_text(tokens: TokenFile) -> None:
    (batch,) = load(BatchReader(tokens, [np.array([3, 1, 2])], pad_token_id=7))
    lengths = tokens.lengths[[3, 1, 2]]
    assert batch.input_ids.shape == (3, lengths.max())
    assert batch.attention_mask.sum(dim=1).tolist() == lengths.tolist()
    assert (batch.input_ids[batch.attention_mask == 0] == 7).all()
    assert batch.num_tokens == lengths.sum()


def test_reading_starts_where_it_is_told(tokens: TokenFile) -> None:
    plan = [np.array([index]) for index in range(6)]
    assert [int(batch.indices) for batch in load(BatchReader(tokens, plan, pad_token_id=0), start=4)] == [4, 5]


def test_the_clock_gives_each_part_its_time() -> None:
    clock = StepClock(CPU)
    clock.begin(0)
    for part in PARTS:
        time.sleep(0.004)
        clock.mark(part)
    time.sleep(0.004)
    times = clock.end()
    assert times is not None
    assert all(0.004 <= seconds < 0.05 for seconds in [*times.parts_s.values(), times.other_s])
    assert sum(times.parts_s.values()) + times.other_s == pytest.approx(times.wall_s, rel=1e-6)


def test_what_happens_between_steps_is_the_next_ones_other_unless_paused() -> None:
    clock = StepClock(CPU)
    clock.begin(0)
    clock.end()
    time.sleep(0.01)
    clock.begin(1)
    between = clock.end()
    clock.pause()
    time.sleep(0.01)
    clock.begin(2)
    paused = clock.end()
    assert between is not None
    assert paused is not None
    assert between.other_s >= 0.01 > paused.wall_s


def test_flops_are_those_of_the_formula(checkpoint: Path) -> None:
    model = load_classifier(checkpoint, ("a", "b", "c"), seed=0)
    hidden, feed_forward, layers, rows, length = 32, 64, 3, 5, 24
    products = rows * length * (4 * hidden * hidden + 2 * hidden * feed_forward) * layers
    attention = 2 * rows * length * length * hidden * layers
    head = rows * (hidden * hidden + hidden * 3)
    # 2 FLOPs a multiply-add; the backward pass computes two products for each of the forward pass.
    cost = step_cost(model, CPU, Precision("fp32", "test"), torch.float32)
    expected = 2 * (products + attention + head)
    assert cost.forward_flops.at(rows, length) == pytest.approx(expected, rel=0.01)
    assert cost.backward_flops.at(rows, length) == pytest.approx(2 * expected, rel=0.01)
    # every weight matrix is read once forward, and read and written (its gradient) once backward
    assert cost.forward_bytes.at(1, 0) > 4 * (4 * hidden * hidden + 2 * hidden * feed_forward) * layers
    assert cost.backward_bytes.at(rows, length) > cost.forward_bytes.at(rows, length)


def test_saved_bytes_are_those_of_a_larger_batch(checkpoint: Path) -> None:
    model = load_classifier(checkpoint, ("a", "b", "c"), seed=0).train()
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in parameters:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.zeros((9, 30), dtype=torch.int64)
    # in the operators that training uses
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), quick(CPU):
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    measured = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    predicted = saved_bytes(model, CPU, Precision("fp32", ""), torch.float32).at(9, 30)
    assert predicted == pytest.approx(measured, rel=0.05)


def test_the_smaller_embedding_changes_no_result(checkpoint: Path) -> None:
    encoded = [[2, 10, 11, 3], [2, 30, 3]]
    vocabulary = Vocabulary(encoded, pad_token_id=0)
    rows = vocabulary.rows_of(encoded)
    assert vocabulary.kept.tolist() == [0, 2, 3, 10, 11, 30]
    model = load_classifier(checkpoint, ("a", "b", "c"), seed=0).eval()
    whole = model.get_input_embeddings().weight.clone()
    expected = model(input_ids=torch.tensor([encoded[0]])).logits
    kept = vocabulary.shrink(model)
    assert model.get_input_embeddings().weight.shape[0] == 6
    torch.testing.assert_close(model(input_ids=torch.tensor([rows[0]])).logits, expected)
    with torch.no_grad():
        model.get_input_embeddings().weight += 1
    vocabulary.restore(model, kept)
    changed = (model.get_input_embeddings().weight - whole).mean(dim=1)
    torch.testing.assert_close(changed[vocabulary.kept], torch.ones(6))
    assert float(changed.detach().sum()) == pytest.approx(6, rel=1e-5)


def test_training_the_smaller_embedding_equals_training_all_of_it(checkpoint: Path) -> None:
    encoded = [[2, 10, 11, 3], [2, 30, 12, 3]]
    vocabulary = Vocabulary(encoded, pad_token_id=0)

    def trained(*, smaller: bool) -> torch.Tensor:
        model = load_classifier(checkpoint, ("a", "b", "c"), seed=0).eval()
        kept = vocabulary.shrink(model) if smaller else None
        ids = torch.tensor(vocabulary.rows_of(encoded) if smaller else encoded)
        optimizer = torch.optim.AdamW(parameter_groups(model, 0.01), lr=1e-2)
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(input_ids=ids).logits, torch.tensor([0, 2])).backward()
            optimizer.step()
        if kept is not None:
            vocabulary.restore(model, kept)
        return model.get_input_embeddings().weight.detach()

    torch.testing.assert_close(trained(smaller=True), trained(smaller=False))


def test_a_student_keeps_the_named_layers(checkpoint: Path) -> None:
    teacher = load_classifier(checkpoint, ("a", "b", "c"), seed=0)
    student = student_of(teacher, (0, 2))
    for own, index in zip(layer_stack(student), (0, 2), strict=True):
        for mine, theirs in zip(own.parameters(), layer_stack(teacher)[index].parameters(), strict=True):
            assert torch.equal(mine, theirs)
    assert teacher.config.num_hidden_layers == 3


@pytest.mark.parametrize(("architecture", "positions"), [("bert", 68), ("roberta", 66), ("mpnet", 66)])
def test_positions_leave_room_for_an_offset(tmp_path: Path, architecture: str, positions: int) -> None:
    model = load_classifier(write_checkpoint(tmp_path, architecture), ("a", "b"), seed=0).eval()
    assert max_positions(model) == positions
    model(input_ids=torch.full((1, positions), 5))
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=torch.full((1, positions + 1), 5))


def batch_of(labels: list[int], weights: list[float], num_texts: int) -> Batch:
    ids = torch.zeros((len(labels), 2), dtype=torch.int64)
    return Batch(
        indices=torch.arange(len(labels)),
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        labels=torch.tensor(labels),
        weights=torch.tensor(weights),
        num_texts=num_texts,
    )


def test_the_label_loss_is_a_weighted_share_of_the_global_mean() -> None:
    logits = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    answer = type("Answer", (), {"logits": logits})
    loss = objective.LabelLoss()(lambda **_: answer, batch_of([0, 0], [1.0, 0.5], num_texts=4))
    first, second = math.log(1 + math.exp(-1)), math.log(1 + math.exp(2))
    assert float(loss) == pytest.approx((first + 0.5 * second) / 4)


def test_soft_loss_is_zero_for_equal_logits_and_positive_otherwise() -> None:
    logits = torch.tensor([[1.0, 0.0, -1.0]])
    assert float(objective.soft_loss(logits, logits, 2.0)) == pytest.approx(0, abs=1e-7)
    p, q = (torch.softmax(values / 2, dim=-1) for values in (logits, logits.flip(1)))
    expected = 4 * (q * (q / p).log()).sum()
    assert float(objective.soft_loss(logits, logits.flip(1), 2.0)) == pytest.approx(float(expected))


def test_hidden_loss_leaves_padding_out() -> None:
    states = torch.zeros((1, 3, 2, 4))
    teacher = torch.ones((1, 3, 2, 4))
    teacher[0, 2] = 100
    assert float(objective.hidden_loss(states, teacher, torch.tensor([[1, 1, 0]]))) == pytest.approx(1.0)


def test_the_learning_rate_rises_and_falls() -> None:
    factors = [rate_factor(step, 100, warmup_share=0.1) for step in range(100)]
    assert max(factors) == factors[10] == 1.0
    assert factors[:11] == sorted(factors[:11])
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert 0 < factors[0] < 0.1
    assert 0 < factors[-1] < 0.02


def test_balanced_weights_are_one_in_the_mean() -> None:
    labels = np.array([0] * 90 + [1] * 10)
    weights = balanced_weights(labels, 2)
    assert weights[1] == pytest.approx(9 * weights[0])
    assert weights[labels].mean() == pytest.approx(1)


@pytest.mark.parametrize(("narrow", "chosen"), [(0.03, "fp32"), (1.2, "fp32"), (8.0, "bf16")])
def test_auto_takes_what_was_measured_to_be_fast(monkeypatch: pytest.MonkeyPatch, narrow: float, chosen: str) -> None:
    rates = {"fp32": 100e9, "bf16": narrow * 100e9}
    monkeypatch.setattr(precision, "product_flops_per_s", lambda dtype, *_, **__: rates[dtype])
    found = choose("auto", CPU)
    assert found.name == chosen
    assert f"{narrow:.2f}× FP32's rate" in found.reason


def test_a_slow_type_that_was_asked_for_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(precision, "product_flops_per_s", lambda dtype, *_, **__: 1e9 if dtype == "bf16" else 30e9)
    assert choose("bf16", CPU).name == "bf16"
    assert "warning: precision bf16 was asked for" in " ".join(capsys.readouterr().err.split())


def test_a_ledger_names_the_budget_that_fits() -> None:
    prediction = Prediction(parameters_bytes=100, activations=BatchCost((0.0, 0.0, 10.0, 0.0)), base_bytes=200)
    prediction.check(4, 10, available_bytes=1250)  # a fifth stays free
    with pytest.raises(UserError, match=r"help: set train.token_budget to 30 or less"):
        prediction.check(4, 10, available_bytes=1200)
    with pytest.raises(UserError, match="no batch size fits"):
        prediction.check(4, 10, available_bytes=700)
    ledger = prediction.ledger(4, 10, measured_peak_bytes=None)
    assert ledger.predicted_bytes == 200 + 4 * 100 + 400


def usage(wall_s: float, energy: Energy) -> Usage:
    return Usage(wall_s=wall_s, cpu_s=1, energy=energy, peak_rss_bytes=int(wall_s), context_switches=3)


def test_windows_add_up_and_energy_of_two_methods_does_not() -> None:
    counted = Energy(energy_j=2, method="rapl", reason="CPU packages")
    both = add(usage(1, counted), usage(2, counted))
    assert (both.wall_s, both.cpu_s, both.energy.energy_j, both.peak_rss_bytes) == (3, 2, 4, 2)
    mixed = add(usage(1, counted), usage(1, Energy(energy_j=1, method="estimate", reason="watts")))
    assert mixed.energy.energy_j is None
    assert mixed.energy.reason == "measured by rapl in one part and by estimate in another"


def test_phases_are_entered_again_and_go_on_from_an_earlier_attempt() -> None:
    phases = Phases(None)
    for _ in range(2):
        with phases.phase("train"):
            time.sleep(0.005)
            assert phases.so_far()["train"].wall_s >= 0.005
    before = phases.so_far()["train"].wall_s
    phases.go_on_from({"train": usage(100, Energy(reason="none")), "load": usage(1, Energy(reason="none"))})
    assert phases.so_far()["train"].wall_s == pytest.approx(before + 100)
    assert phases.total().wall_s == pytest.approx(before + 101)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"token_budget": 32, "max_length": 64}, "a text would not fit"),
        ({"student": {"hard_weight": 0, "soft_weight": 0, "hidden_weight": 0}}, "nothing to learn from"),
        ({"student": {"model": "minilm-l6"}}, "hidden_weight must be 0"),
        ({"student": {"layers": [2, 0]}}, "layers ascend, from 0"),
        ({"teacher": {"epoch": 3}}, "Extra inputs"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused(section: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig.model_validate(section)


def test_a_student_may_start_from_another_model_without_hidden_states() -> None:
    assert StudentConfig(model="minilm-l6", hidden_weight=0).model == "minilm-l6"


def test_usage_of_several_processes_is_summed_but_a_machine_counter_once() -> None:
    def used(wall_s: float, energy_j: float) -> dict[str, Usage]:
        energy = Energy(energy_j=energy_j, method="rapl", reason="CPU packages")
        return {"train": Usage(wall_s=wall_s, cpu_s=wall_s, energy=energy, peak_rss_bytes=100, context_switches=7)}

    # two processes on one machine, one on another
    found = together([(0, used(10, 50)), (1, used(12, 51)), (0, used(11, 70))])["train"]
    assert found.wall_s == 12
    assert found.cpu_s == 33
    assert found.peak_rss_bytes == 300
    assert found.context_switches == 21
    assert found.energy.energy_j == 120


def test_the_process_group_is_left_behind_by_nobody() -> None:
    leave()  # alone there is none
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    leave()
    assert not dist.is_initialized()
