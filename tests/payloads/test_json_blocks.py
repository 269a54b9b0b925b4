"""JSON payloads at the places where a kernel that reads several bytes at once could err.

What it makes of them is what the decoder in Python makes, which reads none of its own.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import mmap
import os
import random
import struct
from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal

import pyarrow as pa
import pytest

from jetspark.payloads.ddl import arrow_fields
from jetspark.payloads.json_decoder import JsonDecoder

_OFFSETS = range(71)
_ENDS = [
    *(b"", b"\\n", b'\\"', b"\\\\", b"\\u00e9", b"\\ud83d\\ude00", "é".encode(), "漢".encode()),
    *("😀".encode(), b"\x7f", b"\x01", b"\x1f", b"\xff", b"\x80", b"\xc3", b"\xed\xa0\x80"),
    *(b"\\x", b"\\u12", b"\\ud800", b"\n"),
]
"""What comes behind plain bytes of a string: half of it is no JSON."""
_EVERY_KIND = (
    "t STRING, y TINYINT, h SMALLINT, i INT, l BIGINT, d DOUBLE, f FLOAT, b BOOLEAN, on DATE, "
    "at TIMESTAMP, p DECIMAL(10, 2), z BINARY, s STRUCT<a: INT, b: STRING>, "
    "o ARRAY<INT>, m MAP<STRING, INT>"
)
_DOCUMENT = (
    b'{"t":"some text","y":-12,"h":123,"i":1234567,"l":123456789012,"d":-12.75e1,"f":0.5,'
    b'"b":true,"on":"2026-01-31","at":"2026-01-31T12:34:56.789012+05:30","p":1234.50,'
    b'"z":"aGVsbG8=","s":{"a":null,"b":"x\\ny"},"o":[1,23,456],"m":{"k":7,"key two":-8},'
    b'"unknown":[{"a":"b"},-1.5e3,false]} '
)


def _compare(ddl: str, payloads: Iterable[bytes]) -> list[str | None]:
    """The reasons, on which the kernel and the decoder agree as on the columns."""
    documents = pa.array(payloads, pa.binary())
    fields = JsonDecoder(arrow_fields(ddl, "json:"))
    columns, reasons = fields.decode(documents)
    expected, why = fields.decode_plainly(documents)
    for column, other in zip(columns, expected, strict=True):
        column.validate(full=True)
        assert repr(column.to_pylist()) == repr(other.to_pylist())
    assert reasons.equals(why)
    found: list[str | None] = reasons.to_pylist()
    return found


@pytest.mark.parametrize("end", _ENDS)
def test_a_string_may_have_anything_at_each_offset(end: bytes) -> None:
    parts = [b"x" * offset + end + rest for offset in _OFFSETS for rest in (b"", b"y" * 40)]
    reasons = _compare("t STRING, n INT", (b'{"t":"%s","n":1}' % part for part in parts))
    assert len(set(map(bool, reasons))) == 1
    _compare("n INT", (b'{"%s":"%s","n":1}' % (part, part) for part in parts))
    _compare("m MAP<STRING, STRING>", (b'{"m":{"%s":"%s"}}' % (part, part) for part in parts))


def test_a_string_may_end_with_the_payload_at_each_offset() -> None:
    reasons = _compare(
        "t STRING", (b'{"t":"' + b"x" * offset + end for offset in _OFFSETS for end in _ENDS)
    )
    assert None not in reasons


def test_a_string_is_utf_8_as_python_has_it() -> None:
    leads = bytes.fromhex("7f80bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5ff")
    tails = bytes.fromhex("7f808f909fa0bfc0ff")
    parts = [bytes(part) for part in itertools.product(leads, tails, tails, tails)]
    reasons = _compare("t STRING", (b'{"t":"%s"}' % part for part in parts))
    for part, reason in zip(parts, reasons, strict=True):
        with suppress(UnicodeDecodeError):
            part.decode()
            assert reason is None, part
            continue
        assert reason is not None, part


@pytest.mark.parametrize("digits", ["1234567890" * 5, "0" * 50, "10" * 25, "9" * 50])
@pytest.mark.parametrize("kind", ["TINYINT", "INT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(38,9)"])
def test_a_number_may_have_any_count_of_digits(kind: str, digits: str) -> None:
    texts = [
        sign + digits[:whole] + point + digits[:places] + exponent + behind
        for sign in ("", "-", "+")
        for whole in range(42)
        for point, places in (("", 0), (".", 0), *((".", count) for count in (1, 7, 8, 9, 17)))
        for exponent in ("", "e2", "E-3", "e")
        for behind in ("", " ", "x")
    ]
    _compare(f"v {kind}, w INT", (f'{{"v":{text},"w":1}}'.encode() for text in texts))


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_a_real_number_becomes_the_nearest(kind: str) -> None:
    rng = random.Random(7)
    texts = ["3.4028235677973366e38", "3.4028235677973365e38", "3.4028235e38", "3.4028236e38"]
    for _ in range(20_000):
        digits = str(rng.randrange(1, 10 ** rng.randint(1, 20)))
        texts.append(f"{digits[0]}.{digits[1:] or 0}e{rng.randint(-50, 50)}")
        texts.append(repr(struct.unpack("d", rng.randbytes(8))[0]))
    for _ in range(5_000):  # in the middle between two, or nearly
        odd, bits = rng.randrange(2**52, 2**53) * 2 + 1, rng.randint(-90, 60)
        middle = Decimal(odd) * Decimal(2) ** bits
        texts += [f"{middle:.{places}e}" for places in (15, 16, 17, 18)]
        texts += [str(odd * 2 ** max(bits, 0)) + ".0", f"{odd}e{bits // 4}"]
    _compare(f"v {kind}", (b'{"v":%s}' % text.encode() for text in texts))


@pytest.mark.parametrize("limit", [2**7, 2**15, 2**31, 2**63])
@pytest.mark.parametrize("kind", ["TINYINT", "SMALLINT", "INT", "BIGINT"])
def test_a_whole_number_fits_up_to_its_limits(kind: str, limit: int) -> None:
    numbers = [sign * limit + more for sign in (1, -1) for more in range(-2, 3)]
    _compare(f"v {kind}", (b'{"v":%d}' % number for number in numbers))


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMP_NTZ"])
def test_a_time_has_each_of_its_bytes(kind: str) -> None:
    whole = b"2024-02-29T23:59:59.123456789+17:59"
    texts = [whole[:size] + end for size in range(len(whole) + 1) for end in (b"", b"Z", b"0")]
    texts += [whole[:10] + whole[19:], whole.replace(b"T", b" "), whole.replace(b"+", b"-")]
    texts += [
        text[:at] + byte + text[at + 1 :]
        for text in (whole, whole[:10])
        for at in range(len(text))
        for byte in (b"/", b":", b"9", b"0", b"\x7f", b" ", "é".encode())
    ]
    texts += [
        b"%04d-%02d-%02d" % (year, month, day)
        for year in (0, 1, 1900, 2000)
        for month, day in ((2, 29), (13, 1), (0, 1), (4, 31), (12, 0), (12, 32))
    ]
    reasons = _compare(f"v {kind}", (b'{"v":"%s"}' % text for text in texts))
    assert None in reasons


def test_what_is_behind_a_payload_is_no_part_of_it() -> None:
    size = len(_DOCUMENT)
    halves = [half for at in range(1, size - 1) for half in (_DOCUMENT[:at], _DOCUMENT[at:])]
    reasons = _compare(_EVERY_KIND, [*halves, _DOCUMENT, b"", *halves])
    assert reasons.index(None) == len(halves)
    assert reasons.count(None) == 1


@pytest.mark.skipif(os.name != "posix", reason="protects memory with mprotect")
def test_no_byte_is_read_behind_the_data() -> None:
    """The page behind them may not be read: a signal ends whoever does."""
    fields = JsonDecoder(arrow_fields(_EVERY_KIND, "json:"))
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    assert protect(address + mmap.PAGESIZE, mmap.PAGESIZE, 0) == 0
    documents = [_DOCUMENT, b'{"t":"%s"}' % (b"x" * 100), b'{"t":"%s' % (b"x" * 100)]
    for document in documents:
        for size in range(len(document) + 1):
            pages[mmap.PAGESIZE - size : mmap.PAGESIZE] = document[:size]
            data = pa.foreign_buffer(address + mmap.PAGESIZE - size, size)
            offsets = pa.py_buffer(struct.pack("=3i", 0, 0, size))
            payloads = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, data])
            _, reasons = fields.decode(payloads)
            is_whole = document[:size].rstrip().endswith(b"}") and size >= len(document) - 1
            assert [one is None for one in reasons.to_pylist()] == [False, is_whole], size


def test_names_of_every_size_are_told_apart() -> None:
    names = ["n" * size for size in range(1, 42)] + ["n" * size + "m" for size in range(41)]
    ddl = ", ".join(f"`{name}` INT" for name in names)
    members = [b'"%s":%d' % (name.encode(), at) for at, name in enumerate(names)]
    spaced = [b' "%s" \t: %d ' % (name.encode(), at) for at, name in enumerate(names)]
    orders = [members, members[::-1], members[::2], members[1:] + members[:1], spaced]
    orders += [[*members, one] for one in members] + [[one, *members[10:]] for one in members]
    orders += [[b'"%s":1' % (b"n" * size)] for size in range(41, 50)]
    _compare(ddl, (b"{%s}" % b",".join(order) for order in orders))


@pytest.mark.parametrize("name", ['a":1,"b', "a\\", 'a"', "\\u0061", "a\nb", "x" * 1001])
def test_a_name_is_no_text_of_json(name: str) -> None:
    ddl = f"`{name}` INT, a INT, b INT"
    raw = b'{"%s":1,"b":2}' % name.encode()
    _compare(ddl, [raw, json.dumps({name: 1, "b": 2}).encode(), b'{"a":1,"b":2}'])
