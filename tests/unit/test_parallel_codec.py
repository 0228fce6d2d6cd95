"""What is finished beyond a committed offset survives the commit's metadata, or is not believed."""

import base64
import random
import string

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from headrace.errors import ForeignMetadata
from headrace.parallel.state import LIMIT, codec, decode, encode
from headrace.parallel.state.codec import always_fits, room
from support.examples import examples

OFFSETS = st.integers(0, 1 << 62)
SPAN = room() * 8


def runs_of(offsets):
    """Runs from single offsets, the slow and plain way."""
    runs = []
    for offset in sorted(offsets):
        if runs and runs[-1].stop == offset:
            runs[-1] = range(runs[-1].start, offset + 1)
        else:
            runs.append(range(offset, offset + 1))
    return tuple(runs)


def runs_from(offset, lengths):
    """Runs from the lengths of unfinished and finished stretches in turn."""
    runs = []
    for unfinished, finished in lengths:
        runs.append(range(offset + unfinished, offset + unfinished + finished))
        offset = runs[-1].stop
    return tuple(runs)


LENGTHS = st.integers(1, 3) | st.integers(1, 1 << 14) | st.integers(1, 1 << 50)
MAPS = st.builds(runs_from, OFFSETS, st.lists(st.tuples(LENGTHS, LENGTHS), max_size=60))
NEAR = st.sets(st.integers(0, 2000), max_size=400)


# --- identity ---


@given(OFFSETS, NEAR)
@example(0, set())
@example(5, {0})
@example(1 << 62, {1})
@examples(300)
def test_near_offsets_come_back(offset, beyond):
    finished = runs_of(offset + each for each in beyond)
    text = encode(offset, finished)
    assert decode(offset, text) == finished
    assert len(text.encode()) <= LIMIT


@given(MAPS)
@examples(300)
def test_sparse_offsets_come_back(finished):
    offset = finished[0].start - 1 if finished else 0
    assert decode(offset, encode(offset, finished)) == finished


@pytest.mark.parametrize("step", [2, 3, 7, 8, 9])
def test_a_full_span_of_a_pattern_comes_back(step):
    finished = runs_of(range(step - 1, SPAN, step))
    assert decode(0, encode(0, finished)) == finished


def test_the_last_offset_there_can_be_comes_back():
    finished = (range((1 << 63) - 1, 1 << 63),)
    assert decode(7, encode(7, finished)) == finished


def test_nothing_finished_takes_no_metadata():
    assert encode(42, ()) == ""
    assert decode(42, "") == decode(42, None) == ()


# --- size ---


def test_a_million_finished_behind_one_stuck_take_a_few_bytes():
    assert len(encode(0, (range(1, 1_000_000),))) <= 16


@pytest.mark.parametrize(
    ("finished", "form"),
    [
        ((range(1, 3), range(4, 5), range(7, 8)), codec._BITS),
        ((range(1, 90), range(91, 1000)), codec._MOSTLY_FINISHED),
        ((range(500, 501), range(900, 901)), codec._MOSTLY_UNFINISHED),
        (runs_of(range(1, 20_000, 2)), codec._BITS + codec._DEFLATED),
        (
            runs_of(set(range(400_000)) - {*range(0, 400_000, 400)}),
            codec._MOSTLY_FINISHED + codec._DEFLATED,
        ),
        (runs_of(range(400, 400_000, 400)), codec._MOSTLY_UNFINISHED + codec._DEFLATED),
    ],
    ids=["bits", "runs", "single", "bits deflated", "runs deflated", "single deflated"],
)
def test_the_smallest_form_is_taken(finished, form):
    text = encode(0, finished)
    assert base64.b64decode(text[4:])[0] == form
    assert decode(0, text) == finished
    bodies = [len(body) for _, body in codec._bodies(0, finished, room())]
    assert len(base64.b64decode(text[4:])) == 5 + min(bodies)


def test_what_does_not_fit_raises_and_drops_nothing():
    noise = random.Random(1)
    finished = runs_of(noise.sample(range(1, SPAN * 4), SPAN * 2))
    with pytest.raises(OverflowError, match="do not fit 4,096 bytes"):
        encode(0, finished)
    few = runs_from(0, [(noise.randrange(1, 1 << 40), 1 << 40) for _ in range(600)])
    with pytest.raises(OverflowError):
        encode(0, few)


LIMITS = st.integers(24, 200)


# Where a run's length needs a byte more, on both sides.
EDGES = [1, *(size for power in range(6, 62, 7) for size in ((1 << power) - 1, 1 << power))]


@given(LIMITS, st.lists(st.tuples(st.integers(1, 3), st.sampled_from(EDGES)), min_size=1))
@examples(300)
def test_what_always_fits_does_fit(limit, lengths):
    """Runs of the most awkward lengths, as many as are allowed."""
    while not always_fits(
        sum(map(sum, lengths)), sum(unfinished for unfinished, _ in lengths), room(limit)
    ):
        lengths.pop()
    if lengths:
        assert len(encode(100, runs_from(100, lengths), limit)) <= limit


@pytest.mark.parametrize("length", EDGES)
def test_as_many_runs_of_one_length_as_are_allowed_do_fit(length):
    most = min(3100, (1 << 63) // (length + 1))
    count = max(n for n in range(1, most + 1) if always_fits(n * (length + 1), n, room()))
    finished = runs_from(0, [(1, length)] * count)
    assert len(codec._to_pairs([length] * count, [1] * count)) <= room() or length == 1
    assert decode(0, encode(0, finished)) == finished


@given(LIMITS, st.integers(0), st.floats(0.05, 0.95))
@examples(300)
def test_a_span_of_bits_fits_whatever_is_finished(limit, seed, part):
    noise = random.Random(seed)
    span = room(limit) * 8
    assert always_fits(span, span, room(limit))
    finished = runs_of([each for each in range(1, span) if noise.random() < part] or [span - 1])
    assert len(encode(0, finished, limit)) <= limit


def test_the_bounds_are_those_of_the_documents():
    assert SPAN == 24_512
    assert always_fits(SPAN, SPAN, room())
    assert not always_fits(SPAN + 1, SPAN, room())
    assert always_fits((1 << 20) - 1, 1468, room())
    assert not always_fits((1 << 20) - 1, 1469, room())


# --- what is not ours ---

TEXTS = st.text() | st.text(string.printable) | st.binary().map(lambda data: data.decode("latin-1"))
BODIES = st.binary(max_size=200)


@given(OFFSETS, TEXTS.filter(bool))
@example(0, "hr1:")
@example(0, "hr1:AAAA")
@example(0, "hr1:é")
@example(0, "hr1:\ud800")
@example(0, "hr2:AHrf1qt2")
@examples(300)
def test_foreign_text_is_a_clear_error(offset, text):
    with pytest.raises(ForeignMetadata) as caught:
        decode(offset, text)
    assert caught.value.facts["offset"] == offset
    assert "handled again" in caught.value.hint


@given(OFFSETS, BODIES, st.integers(0, 255))
@example(0, b"", codec._BITS)
@example(0, b"\0", codec._MOSTLY_FINISHED)
@example(0, b"\3\0\3\0", codec._MOSTLY_FINISHED)
@example(0, b"\xff" * 200, codec._MOSTLY_UNFINISHED)
@examples(300)
def test_a_sealed_body_of_anything_is_a_map_or_a_clear_error(offset, body, form):
    text = "hr1:" + base64.b64encode(codec._seal(offset, form, body)).decode()
    try:
        finished = decode(offset, text)
    except ForeignMetadata:
        return
    edges = [offset - 1, *(edge for run in finished for edge in (run.start, run.stop))]
    assert edges == sorted(set(edges))


def test_a_number_without_end_is_refused():
    text = "hr1:" + base64.b64encode(codec._seal(0, 0, b"\xff" * 3000)).decode()
    with pytest.raises(ForeignMetadata, match="too large"):
        decode(0, text)


def test_a_body_that_inflates_without_end_is_refused():
    bomb = codec.zlib.compressobj(wbits=-15)
    body = bomb.compress(bytes(1 << 24)) + bomb.flush()
    form = codec._BITS + codec._DEFLATED
    text = "hr1:" + base64.b64encode(codec._seal(0, form, body)).decode()
    with pytest.raises(ForeignMetadata, match="inflate"):
        decode(0, text)


@given(NEAR.filter(bool), st.data())
@examples(300)
def test_a_damaged_map_is_a_clear_error(beyond, data):
    text = encode(10, runs_of(10 + each for each in beyond))
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(string.ascii_letters + string.digits + "+/=: "))
    damaged = data.draw(
        st.sampled_from([text[:place] + other + text[place + 1 :], text[:place], text + other])
    )
    # The last digit of base64 may have bits that nobody reads.
    assume(damaged and damaged.rstrip("=")[:-1] != text.rstrip("=")[:-1])
    with pytest.raises(ForeignMetadata):
        decode(10, damaged)


@given(OFFSETS, OFFSETS, NEAR.filter(bool))
def test_a_map_at_another_offset_is_not_believed(offset, other, beyond):
    assume(offset != other)
    text = encode(offset, runs_of(offset + each for each in beyond))
    with pytest.raises(ForeignMetadata, match="checksum"):
        decode(other, text)
