"""Which offsets beyond a committed one are finished, as the text that a commit carries.

    text     hr1: and base64 of  form (1 byte), checksum (4 bytes), body
    form     how the body is to be read; +16 if it is deflated
    body     one of
             0  pairs of lengths, the unfinished stretch mostly 1: varint(finished * 2 + more),
                and if more: varint(unfinished)
             1  the same with the two exchanged: the finished run mostly 1
             2  a bit for each offset, the lowest first, 1 if it is finished

Stretches begin at the committed offset, and the last one is finished: whatever follows is not. The
smallest form wins. The checksum covers the committed offset too: a map that was moved to another
offset is not believed.
"""

import base64
import zlib
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from headrace.errors import ForeignMetadata

# Runs of finished offsets: ascending, not empty, no two of them touch.
Finished: TypeAlias = tuple[range, ...]

LIMIT = 4096  # bytes of metadata: what a broker takes unless offset.metadata.max.bytes says else
_PREFIX = "hr1:"
_HEAD_BYTES = 5
_MOSTLY_FINISHED, _MOSTLY_UNFINISHED, _BITS = range(3)
_DEFLATED = 16
_WORTH_DEFLATING = 24  # bytes; fewer only grow
_MOST_INFLATED = 1 << 16
_END_OF_OFFSETS = 1 << 63


def room(limit: int = LIMIT) -> int:
    """How many bytes a body may have."""
    return (limit - len(_PREFIX)) // 4 * 3 - _HEAD_BYTES


def always_fits(span: int, unfinished: int, room: int) -> bool:
    """Whether a map of so many offsets, at most so many of them unfinished, surely has room.

    A bit for each offset; or else for each unfinished one a varint with the length of the run
    that follows it. Fewer unfinished ones or a shorter span need no more, so what fits goes on
    fitting in whatever order the rest is finished.
    """
    return span <= room * 8 or _most_bytes(span, unfinished) <= room


def _most_bytes(span: int, unfinished: int) -> int:
    """What the first form takes at most, however the runs are spread.

    A byte for each unfinished offset; a second one for a run of 2**6 or more, of which there are
    at most span / 2**6; a third one for a run of 2**13 or more; and so on.
    """
    most = unfinished
    long_runs = span >> 6
    while long_runs:
        most += min(unfinished, long_runs)
        long_runs >>= 7
    return most


def encode(offset: int, finished: Finished, limit: int = LIMIT) -> str:
    """The metadata of a commit of `offset`, beyond which these are finished already.

    Raises `OverflowError` if it does not fit; `Tracker.may_start` sees to it that it does.

    >>> encode(100, (range(101, 160),))
    'hr1:AHrf1qt2'
    """
    if not finished:
        return ""
    most = room(limit)
    form, body = min(_bodies(offset, finished, most), key=_length, default=(0, bytes(most + 1)))
    if len(body) > most:
        raise OverflowError(
            f"{len(finished):,} runs of finished offsets from {finished[0].start} to "
            f"{finished[-1].stop} do not fit {limit:,} bytes of metadata at offset {offset}"
        )
    return _PREFIX + base64.b64encode(_seal(offset, form, body)).decode("ascii")


def decode(offset: int, metadata: str | None) -> Finished:
    """What `encode` wrote with a commit of `offset`.

    Raises `ForeignMetadata` for everything else: then go on from the offset as if there were no
    metadata, which repeats records and skips none.

    >>> decode(100, "hr1:AHrf1qt2")
    (range(101, 160),)
    """
    if not metadata:
        return ()
    try:
        form, body = _open(offset, metadata)
        return tuple(_runs(offset, form, body))
    except (ValueError, zlib.error) as error:
        raise ForeignMetadata(
            f"the metadata of offset {offset} was not written by Headrace, or is damaged: {error}",
            hint="finished records beyond this offset are handled again; "
            "let no other client commit for this group",
            offset=offset,
            metadata=metadata[:100],
        ) from error


def _length(candidate: tuple[int, bytes]) -> int:
    return len(candidate[1])


def _bodies(offset: int, finished: Finished, most: int) -> Iterator[tuple[int, bytes]]:
    for form, body in _plain_bodies(offset, finished, most):
        yield form, body
        if len(body) >= _WORTH_DEFLATING:
            deflate = zlib.compressobj(wbits=-15)  # bare: we have a checksum of our own
            yield form + _DEFLATED, deflate.compress(body) + deflate.flush()


def _plain_bodies(offset: int, finished: Finished, most: int) -> Iterator[tuple[int, bytes]]:
    bit_bytes = (finished[-1].stop - offset + 7) // 8
    if bit_bytes <= most:
        yield _BITS, _to_bits(offset, finished, bit_bytes)
    if len(finished) <= min(bit_bytes, most):  # a run takes a byte or more
        unfinished = [
            run.start - stop
            for stop, run in zip((offset, *(run.stop for run in finished)), finished, strict=False)
        ]
        lengths = [run.stop - run.start for run in finished]
        yield _MOSTLY_FINISHED, _to_pairs(lengths, unfinished)
        yield _MOSTLY_UNFINISHED, _to_pairs(unfinished, lengths)


def _to_bits(offset: int, finished: Finished, size: int) -> bytes:
    digits = bytearray(b"0") * (size * 8)
    for run in finished:
        digits[run.start - offset : run.stop - offset] = b"1" * (run.stop - run.start)
    digits.reverse()
    return int(digits, 2).to_bytes(size, "little")


def _to_pairs(lengths: Iterable[int], mostly_one: Iterable[int]) -> bytes:
    body = bytearray()
    for length, other in zip(lengths, mostly_one, strict=True):
        _append_varint(body, length * 2 + (other != 1))
        if other != 1:
            _append_varint(body, other)
    return bytes(body)


def _append_varint(body: bytearray, number: int) -> None:
    while number > 127:
        body.append(number & 127 | 128)
        number >>= 7
    body.append(number)


def _seal(offset: int, form: int, body: bytes) -> bytes:
    return bytes([form]) + _checksum(offset, form, body) + body


def _checksum(offset: int, form: int, body: bytes) -> bytes:
    return zlib.crc32(body, zlib.crc32(b"%d/%d" % (offset, form))).to_bytes(4, "big")


def _open(offset: int, metadata: str) -> tuple[int, bytes]:
    if not metadata.startswith(_PREFIX):
        raise ValueError(f"it does not begin with {_PREFIX}")
    sealed = base64.b64decode(metadata[len(_PREFIX) :], validate=True)
    if len(sealed) <= _HEAD_BYTES:
        raise ValueError("it is too short")
    form, body = sealed[0], sealed[_HEAD_BYTES:]
    if sealed[1:_HEAD_BYTES] != _checksum(offset, form, body):
        raise ValueError("the checksum does not match")
    if form & _DEFLATED:
        return form - _DEFLATED, _inflate(body)
    return form, body


def _inflate(body: bytes) -> bytes:
    inflate = zlib.decompressobj(wbits=-15)
    inflated = inflate.decompress(body, _MOST_INFLATED)
    if not inflate.eof or inflate.unused_data:
        raise ValueError("it does not inflate to its end")
    return inflated


def _runs(offset: int, form: int, body: bytes) -> Iterator[range]:
    if form == _BITS:
        yield from _from_bits(offset, body)
        return
    if form not in (_MOSTLY_FINISHED, _MOSTLY_UNFINISHED):
        raise ValueError(f"the form {form} is not known")
    stop = offset
    for length, other in _from_pairs(body):
        unfinished, finished = (other, length) if form == _MOSTLY_FINISHED else (length, other)
        start = stop + unfinished
        if not finished or start == stop > offset:
            raise ValueError("a stretch is empty")
        stop = start + finished
        if stop > _END_OF_OFFSETS:
            raise ValueError("it leads beyond the last offset")
        yield range(start, stop)


def _from_bits(offset: int, body: bytes) -> Iterator[range]:
    digits = f"0{int.from_bytes(body, 'little'):b}"[
        ::-1
    ]  # the lowest first, an unfinished one last
    stop = 0
    while (start := digits.find("1", stop)) >= 0:
        stop = digits.index("0", start)
        yield range(offset + start, offset + stop)


def _from_pairs(body: bytes) -> Iterator[tuple[int, int]]:
    numbers = _varints(body)
    for number in numbers:
        if number & 1:
            other = next(numbers, None)
            if other is None:
                raise ValueError("it ends within a pair")
            yield number >> 1, other
        else:
            yield number >> 1, 1


def _varints(body: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in body:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield number
            number = shift = 0
        elif shift > 63:
            raise ValueError("a number is too large")
    if shift:
        raise ValueError("it ends within a number")
