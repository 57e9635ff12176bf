"""Outputs and tokens against the reference: what every distance must see, and when another token is explained."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.core.schemas import Parity
from harness.statistics.parity import PIECE, GreedyAnswer, ParityTally, compare, worst, worst_token_parity

Array = np.ndarray[Any, Any]

values = st.floats(-512, 1e6, width=32).filter(lambda value: value == 0 or abs(value) > 1e-6)
matrices = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=3, max_side=6), elements=values)
nonzero = matrices.filter(lambda array: bool(array.any()))


def one(output: Array, reference: Array, classifier: bool = False) -> Parity:
    return compare({"out": output}, {"out": reference}, classifier)


@given(matrices)
def test_a_copy_has_no_distance(array: Array) -> None:
    result = one(array.copy(), array, classifier=True)
    assert (result.relative_l2, result.max_abs, result.nonfinite, result.top1_agreement) == (0.0, 0.0, 0, 1.0)
    assert result.cosine == pytest.approx(1.0)
    assert result.samples == array.shape[0]


@given(nonzero, st.floats(0.01, 100))
def test_cosine_ignores_scale_and_the_relative_distance_is_the_scale(array: Array, scale: float) -> None:
    result = one(array.astype(np.float64) * scale, array)
    assert result.cosine == pytest.approx(1.0)
    assert result.relative_l2 == pytest.approx(abs(scale - 1), rel=1e-6, abs=1e-12)


@given(nonzero)
def test_the_opposite_is_as_far_as_it_gets(array: Array) -> None:
    result = one(-array, array)
    assert result.cosine == pytest.approx(-1.0)
    assert result.relative_l2 == pytest.approx(2.0)


@given(nonzero, st.data())
def test_one_changed_element_is_seen_at_its_size(array: Array, data: st.DataObject) -> None:
    output = array.astype(np.float64)
    place = tuple(data.draw(st.integers(0, side - 1)) for side in array.shape)
    output[place] += 12.5
    result = one(output, array)
    assert result.max_abs == pytest.approx(12.5)
    norm = np.linalg.norm(array.astype(np.float64))
    assert result.relative_l2 == pytest.approx(12.5 / norm)


@given(matrices, st.sampled_from([np.nan, np.inf, -np.inf]), st.data())
def test_every_value_that_is_not_finite_is_counted_and_hides_no_distance(
    array: Array, bad: float, data: st.DataObject
) -> None:
    output = array.copy().ravel()
    places = data.draw(st.sets(st.integers(0, output.size - 1), min_size=1))
    output[list(places)] = bad
    result = one(output.reshape(array.shape), array, classifier=True)
    assert result.nonfinite == len(places)
    assert (result.relative_l2, result.max_abs, result.cosine, result.top1_agreement) == (None, None, None, None)


def test_a_reference_of_zeros_has_no_scale() -> None:
    zeros = np.zeros((2, 3), np.float32)
    assert one(zeros, zeros).relative_l2 == 0.0
    assert one(zeros, zeros).cosine == 1.0
    away = one(zeros + 1e-3, zeros)
    assert away.relative_l2 is not None
    assert away.relative_l2 > 1e20
    assert away.cosine == 0.0


def test_an_output_of_zeros_is_all_of_the_reference_away() -> None:
    result = one(np.zeros((2, 3)), np.ones((2, 3)))
    assert (result.relative_l2, result.max_abs, result.cosine) == (1.0, 1.0, 0.0)


def test_half_precision_is_compared_without_rounding_the_reference() -> None:
    reference = np.array([[1.0, 1.0 + 2**-12]], np.float32)
    result = one(reference.astype(np.float16), reference)
    assert result.max_abs == 2**-12


def test_numbers_that_overflow_fp32_when_squared_are_compared() -> None:
    big = np.full((1, 4), 3e30, np.float32)
    assert one(big * np.float32(1.5), big).relative_l2 == pytest.approx(0.5)


def test_top1_is_the_share_of_equal_answers_of_the_first_output() -> None:
    reference = {"logits": np.eye(4), "hidden": np.eye(4)}
    output = {"hidden": np.eye(4)[::-1].copy(), "logits": np.eye(4)[[0, 1, 2, 0]]}
    assert compare(output, reference, classifier=True).top1_agreement == 0.75
    assert compare(output, reference, classifier=False).top1_agreement is None


def test_the_worst_output_counts() -> None:
    reference = {"a": np.ones((2, 3)), "b": np.ones((2, 3))}
    result = compare({"a": np.ones((2, 3)), "b": np.ones((2, 3)) * 3}, reference, classifier=False)
    assert (result.relative_l2, result.max_abs) == (2.0, 2.0)
    turned = compare({"a": np.ones((2, 3)), "b": -np.ones((2, 3))}, reference, classifier=False)
    assert turned.cosine == pytest.approx(-1.0)


def test_integer_and_boolean_outputs_are_compared() -> None:
    assert one(np.array([[1, 2]]), np.array([[1, 4]])).max_abs == 2.0
    assert one(np.array([[True, False]]), np.array([[True, True]])).max_abs == 1.0


@pytest.mark.parametrize("kind", ["int32", "int64", "uint32", "uint64"])
def test_the_numbers_of_classes_are_equal_or_different_and_never_near(kind: str) -> None:
    classes = np.array([400, 401, 402, 403], kind)
    near, far = one(np.array([400, 401, 402, 404], kind), classes), one(np.array([400, 401, 402, 1], kind), classes)
    assert near.cosine == far.cosine == 0.75, "the share of equal ones"
    assert near.relative_l2 == far.relative_l2 == pytest.approx(math.sqrt(2 * 0.25))
    assert (near.item_cosine, near.item_relative_l2) == (0.0, pytest.approx(math.sqrt(2)))
    assert one(classes, classes).item_relative_l2 == 0.0
    zeros = np.zeros(4, kind)
    assert one(zeros, zeros).cosine == 1.0


def test_integers_beyond_the_digits_of_a_float_are_compared_exactly() -> None:
    assert one(np.array([2**60 + 1]), np.array([2**60])).cosine == 0.0


def test_pixels_have_a_size() -> None:
    pixels = np.full((2, 50), 200, np.uint8)
    assert one(pixels + np.uint8(1), pixels).relative_l2 == pytest.approx(1 / 200)


def test_an_output_of_no_sample_is_equal_to_itself() -> None:
    assert one(np.zeros((0, 4)), np.zeros((0, 4))).relative_l2 == 0.0


def test_more_outputs_than_the_reference_are_fine_and_fewer_are_not() -> None:
    assert compare({"a": np.ones((1, 1)), "b": np.ones((9, 9))}, {"a": np.ones((1, 1))}, False).relative_l2 == 0.0
    with pytest.raises(ValueError, match="output `b` is missing; the backend gave: a"):
        compare({"a": np.ones((1, 1))}, {"a": np.ones((1, 1)), "b": np.ones((1, 1))}, False)
    with pytest.raises(ValueError, match="the backend gave: nothing"):
        compare({}, {"a": np.ones((1, 1))}, False)


@pytest.mark.parametrize("shape", [(4, 3), (2, 4), (2, 3, 1), (1, 3), (6,)])
def test_another_shape_is_never_broadcast(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"output `out` has shape .* the reference \(2, 3\)"):
        one(np.zeros(shape), np.zeros((2, 3)))


def test_one_wholly_wrong_sample_is_seen_in_a_batch_that_is_near_enough() -> None:
    reference = np.random.default_rng(1).normal(size=(64, 384))
    output = reference + 0.15 * np.random.default_rng(2).normal(size=(64, 384))
    output[3] = reference[5]
    result = one(output, reference)
    assert result.relative_l2 is not None
    assert result.cosine is not None
    assert result.item_relative_l2 is not None
    assert result.item_cosine is not None
    assert (result.relative_l2 < 0.3, result.cosine > 0.97) == (True, True)  # int8's tolerance
    assert result.item_relative_l2 > 1.0
    assert result.item_cosine < 0.3
    assert result.furthest == result.item_relative_l2


@given(nonzero)
def test_of_one_sample_both_distances_are_the_same(array: Array) -> None:
    result = one(array[:1] * np.float32(1.5), array[:1])
    assert result.item_relative_l2 == pytest.approx(result.relative_l2)
    assert result.item_cosine == pytest.approx(result.cosine)


def test_a_sample_of_almost_nothing_is_measured_against_the_others() -> None:
    reference = np.ones((10, 4))
    reference[7] = 1e-9
    result = one(reference + 1e-3, reference)
    assert result.item_relative_l2 is not None
    assert result.item_relative_l2 == pytest.approx(1e-3 / 0.1, rel=0.01)
    assert result.item_cosine == pytest.approx(1.0)


def test_one_sample_of_a_million_times_the_others_does_not_hide_them() -> None:
    reference = np.array([[1e6, 1e6]] + [[1.0, 2.0]] * 7, np.float32)
    output = reference.copy()
    output[1] = 0
    assert (one(output, reference).item_relative_l2 or 0) == pytest.approx(1.0)
    assert one(output, reference).item_cosine == 0.0


@pytest.mark.parametrize("hidden", [-1e9, float(np.finfo(np.float32).min), -1e4])
def test_a_mask_does_not_hide_the_values_beside_it(hidden: float) -> None:
    reference = np.random.default_rng(1).normal(size=(4, 16)).astype(np.float32)
    masked = np.random.default_rng(2).random((4, 16)) < 0.5
    reference[masked] = hidden
    assert one(np.where(masked, hidden, 0.0), reference).item_relative_l2 == pytest.approx(1.0)
    assert (
        one(np.where(masked, hidden, 2 * np.where(masked, 0, reference)), reference).relative_l2 or 0
    ) == pytest.approx(1.0)
    rounded = one(reference * np.where(masked, 1.002, 1.0), reference)
    assert (rounded.relative_l2 or 0) == pytest.approx(0.002)
    assert (one(np.where(masked, 0.0, reference), reference).relative_l2 or 0) == pytest.approx(1.0)


def test_a_lowest_value_is_no_mask_where_it_is_alone_or_others_are_near() -> None:
    for row in ([-1e9, 1.0, 2.0], [-1e4, -1e4, 100.0], [-1e9, -1e9, 0.0], [-1e9, -1e9, -1e9]):
        reference = np.array([row], np.float32)
        output = reference.copy()
        output[0, -1] += 1
        norm = np.linalg.norm(reference.astype(np.float64))
        far = np.linalg.norm(output.astype(np.float64) - reference)
        assert one(output, reference).relative_l2 == pytest.approx(far / norm)


def test_an_output_without_a_batch_axis_is_one_sample() -> None:
    reference = {"y": np.ones((4, 2)), "length": np.array(3.0), "other": np.ones(7)}
    assert compare(reference, reference, False).item_relative_l2 == 0.0
    wrong = {**reference, "other": np.array([2.0, *[1.0] * 6])}
    assert compare(wrong, reference, False).item_relative_l2 == pytest.approx(1 / math.sqrt(7))


def test_a_reference_with_nan_cannot_be_compared_with() -> None:
    reference = np.ones((2, 3))
    reference[1, 1] = np.nan
    with pytest.raises(ValueError, match="the reference of output `out` contains NaN"):
        one(np.ones((2, 3)), reference)


def part(**changes: Any) -> Parity:
    fields = {"samples": 4, "relative_l2": 0.1, "max_abs": 1.0, "cosine": 0.9, "top1_agreement": None, "nonfinite": 0}
    fields |= {"item_relative_l2": 0.2, "item_cosine": 0.8}
    return Parity.model_validate({**fields, **changes})


def test_the_worst_of_nothing_is_nothing_and_of_one_is_itself() -> None:
    assert worst([]) is None
    assert worst([part()]) == part()


def test_the_worst_takes_each_measure_from_where_it_is_worst() -> None:
    result = worst([part(relative_l2=0.3, cosine=0.99), part(max_abs=7.0), part(cosine=-0.5)])
    assert result == part(samples=12, relative_l2=0.3, max_abs=7.0, cosine=-0.5)


def test_one_part_that_is_not_finite_spoils_the_whole() -> None:
    nothing = {"relative_l2": None, "max_abs": None, "cosine": None, "item_relative_l2": None, "item_cosine": None}
    bad = part(**nothing, nonfinite=3)
    result = worst([part(), bad, part()])
    assert result == part(samples=12, **nothing, nonfinite=3)


def test_the_worst_sample_of_all_counts_and_none_where_one_part_did_not_look() -> None:
    result = worst([part(item_relative_l2=0.7), part(item_cosine=0.1), part()])
    assert result == part(samples=12, item_relative_l2=0.7, item_cosine=0.1)
    older = worst([part(), part(item_relative_l2=None, item_cosine=None)])
    assert older is not None
    assert (older.item_relative_l2, older.item_cosine, older.furthest) == (None, None, 0.1)


def test_top1_is_weighted_by_samples() -> None:
    result = worst([part(samples=9, top1_agreement=1.0), part(samples=1, top1_agreement=0.0), part(samples=5)])
    assert result is not None
    assert result.top1_agreement == pytest.approx(0.9)


def test_large_outputs_are_compared_to_the_last_element() -> None:
    reference = np.ones((4, PIECE), dtype=np.float32)
    output = reference.copy()
    output[-1, -1] = 3
    result = compare({"y": output}, {"y": reference}, False)
    assert (result.max_abs, result.relative_l2) == (2.0, pytest.approx(2 / math.sqrt(4 * PIECE)))
    assert result.cosine == pytest.approx((4 * PIECE + 2) / math.sqrt(4 * PIECE * (4 * PIECE + 8)))
    output[2, 5] = np.nan
    assert compare({"y": output}, {"y": reference}, False).nonfinite == 1


def test_comparing_makes_no_large_arrays() -> None:
    # They would count as the peak memory of the backend whose outputs are compared.
    reference = np.ones((64, PIECE), dtype=np.float32)
    output = reference + 1
    tracemalloc.start()
    compare({"y": output}, {"y": reference}, False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < reference.nbytes / 2


INF = math.inf


def test_the_same_infinities_in_the_same_places_are_equal_and_in_no_distance() -> None:
    reference = np.array([[1.0, -INF, 2.0, INF]], np.float32)
    result = one(np.array([[1.0, -INF, 2.5, INF]], np.float32), reference)
    assert (result.nonfinite, result.max_abs) == (0, 0.5)
    assert result.relative_l2 == pytest.approx(0.5 / math.sqrt(5))


@pytest.mark.parametrize(
    ("output", "reference"),
    [(-INF, INF), (INF, 1.0), (1.0, -INF), (-3.4e38, -INF), (math.nan, math.nan), (math.nan, 1.0), (INF, math.nan)],
)
def test_an_infinity_on_one_side_and_every_nan_are_lost(output: float, reference: float) -> None:
    result = one(np.array([[1.0, output]]), np.array([[1.0, reference]]))
    assert (result.nonfinite, result.relative_l2) == (1, None)


def test_infinities_alone_have_no_distance() -> None:
    result = one(np.array([[INF, -INF]]), np.array([[INF, -INF]]))
    assert (result.nonfinite, result.relative_l2, result.cosine) == (0, 0.0, 1.0)


def answer(margin: float) -> GreedyAnswer:
    """Two sequences of three steps over four tokens: token 1 leads token 2 by the margin."""
    logits = np.tile(np.array([0, 3, 3 - margin, 0], np.float32), (2, 3, 1))
    return GreedyAnswer(np.ones((2, 3), np.int64), np.full((2, 3), margin, np.float32), logits)


def forced(tally: ParityTally, off: float) -> None:
    for sequence in range(2):
        for step in range(3):
            tally.force(sequence, step, tally.reference.logits[sequence, step] + np.float32([0, -off, off, 0]))


def test_equal_tokens_and_logits() -> None:
    tally = ParityTally(answer(0.5))
    forced(tally, 0)
    tally.free(0, np.ones(3, np.int64))
    result = tally.result()
    assert (result.max_abs, result.relative_l2, result.free_equal, result.unexplained) == (0, 0, 1, 0)
    assert result.cosine == pytest.approx(1)


@pytest.mark.parametrize(("margin", "off", "unexplained"), [(0.1, 0.06, 0), (0.5, 0.06, 1)])
def test_a_flip_is_explained_only_where_the_numbers_differ_by_as_much(
    margin: float, off: float, unexplained: int
) -> None:
    tally = ParityTally(answer(margin))
    forced(tally, off)
    tally.free(1, np.array([1, 2, 0]))
    result = tally.result()
    assert (result.first_difference, result.unexplained) == (2, unexplained)
    assert result.first_margin == pytest.approx(margin)
    assert result.first_moved == pytest.approx(2 * off, rel=1e-5)


def test_right_logits_beside_a_wrong_token_are_wrong() -> None:
    tally = ParityTally(answer(0.5))
    forced(tally, 0)
    tally.forced_token(0, 1, 3)
    assert tally.result().unexplained == 1


@pytest.mark.parametrize(("token", "unexplained"), [(1, 0), (2, 0), (3, 1)])
def test_a_forced_token_must_be_the_best_by_the_decoders_own_logits(token: int, unexplained: int) -> None:
    tally = ParityTally(answer(0.1))
    # The numbers differ by more than the margin: token 2 leads by the decoder's own logits.
    forced(tally, 0.06)
    tally.forced_token(0, 1, token)
    assert tally.result().unexplained == unexplained


@pytest.mark.parametrize(("token", "unexplained"), [(2, 0), (3, 1), (9, 1)])
def test_a_free_token_is_explained_by_its_own_gap_and_not_by_that_of_the_second_best(
    token: int, unexplained: int
) -> None:
    tally = ParityTally(answer(0.1))
    forced(tally, 0.06)
    tally.free(0, np.array([1, token, 1]))
    assert tally.result().unexplained == unexplained


def test_a_logit_that_is_not_finite_leaves_no_distance() -> None:
    tally = ParityTally(answer(0.5))
    tally.force(0, 0, np.array([np.nan, 0, 0, np.inf], np.float32))
    result = tally.result()
    assert (result.nonfinite, result.max_abs, result.relative_l2, result.cosine) == (2, None, None, None)


def test_the_worst_of_processes_has_the_earliest_difference() -> None:
    parts = []
    for tokens in ([1, 1, 1], [1, 2, 1], [1, 1, 2]):
        tally = ParityTally(answer(0.5))
        forced(tally, 0.01)
        tally.free(0, np.array(tokens))
        parts.append(tally.result())
    result = worst_token_parity(parts)
    assert result is not None
    assert (result.first_difference, result.free_sequences, result.free_equal, result.unexplained) == (2, 3, 1, 2)
    assert worst_token_parity([]) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "comparable"),
    [
        ("float16", "float32", True),
        ("int32", "int64", True),
        ("uint8", "bool", True),
        ("complex128", "float32", False),  # its imaginary part would be in no distance
        ("<U8", "float32", False),
        ("object", "float32", False),
        ("int64", "float32", False),
        ("float32", "int64", False),
    ],
)
def test_only_elements_of_one_kind_are_compared(ours: str, theirs: str, comparable: bool) -> None:
    reference = np.ones((2, 3), theirs)
    if comparable:
        assert one(np.ones((2, 3), ours), reference).relative_l2 == 0
        return
    with pytest.raises(ValueError, match="has elements of type"):
        one(np.ones((2, 3)).astype(ours), reference)


MASK = np.array([[True] * 5 + [False] * 3, [True] * 2 + [False] * 6, [True] * 8])


def hidden_states(kind: str = "float32") -> Array:
    """(3 texts, 8 tokens, 4 values)."""
    return np.random.default_rng(4).normal(size=(3, 8, 4)).astype(kind)


def test_values_of_padding_are_compared_nowhere() -> None:
    reference = hidden_states()
    removed, other, lost = reference.copy(), reference.copy(), reference.copy()
    removed[~MASK], other[~MASK], lost[~MASK] = 0, 100, np.nan
    for output in (removed, other, lost):
        result = compare({"y": output}, {"y": reference}, True, MASK)
        assert (result.relative_l2, result.max_abs, result.item_relative_l2) == (0, 0, 0)
        assert (result.cosine, result.item_cosine) == (pytest.approx(1), pytest.approx(1))
        assert (result.top1_agreement, result.nonfinite, result.samples) == (1, 0, 3)
    assert (compare({"y": removed}, {"y": reference}, False).relative_l2 or 0) > 0.5, "only by the mask"


def test_a_wrong_token_is_as_far_as_in_the_tokens_alone() -> None:
    reference = hidden_states()
    output = reference.copy()
    output[1, 1] += 1
    output[~MASK] = 7
    result = compare({"y": output}, {"y": reference}, True, MASK)
    assert result.relative_l2 == pytest.approx(2 / np.linalg.norm(reference[MASK]))
    assert result.item_relative_l2 == pytest.approx(2 / np.linalg.norm(reference[1, :2]), rel=1e-3)
    product = float(np.vdot(output[MASK], reference[MASK]))
    norms = float(np.linalg.norm(output[MASK]) * np.linalg.norm(reference[MASK]))
    assert result.cosine == pytest.approx(product / norms)
    agree = (output.argmax(-1) == reference.argmax(-1))[MASK]
    assert result.top1_agreement == pytest.approx(agree.mean())


def test_the_answer_to_another_text_is_wrong_for_the_tokens_of_this_one() -> None:
    reference = hidden_states()
    result = compare({"y": np.roll(reference, 1, axis=0)}, {"y": reference}, True, MASK)
    assert (result.item_relative_l2 or 0) > 0.5
    assert (result.top1_agreement or 0) < 0.9


def test_classes_of_tokens_are_counted_among_the_tokens() -> None:
    reference = np.arange(3 * 8 * 2).reshape(3, 8, 2)
    output = reference.copy()
    output[0, 0, 0] = -1
    output[~MASK] = -1
    result = compare({"y": output}, {"y": reference}, False, MASK)
    shown = int(MASK.sum()) * 2
    assert result.cosine == pytest.approx((shown - 1) / shown)
    assert result.relative_l2 == pytest.approx(math.sqrt(2 / shown))


def test_all_of_an_output_for_each_text_is_compared() -> None:
    reference = hidden_states()[:, :, 0]
    output = reference.copy()
    output[~MASK] += 1
    result = compare({"y": output}, {"y": reference}, False, MASK)
    assert result.max_abs == pytest.approx(1), "an embedding may have as many numbers as the text has tokens"


def test_a_mask_fits_every_piece_of_a_large_output() -> None:
    reference = np.ones((2, 3, PIECE), dtype=np.float32)
    mask = np.array([[True, True, False], [True, False, False]])
    output = reference.copy()
    output[~mask] = 5
    assert compare({"y": output}, {"y": reference}, False, mask).max_abs == 0
    output[0, 1, -1] = 3
    assert compare({"y": output}, {"y": reference}, False, mask).max_abs == 2
