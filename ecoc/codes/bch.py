r"""BCH codes: n = 2^m - 1 bits with a guaranteed distance, optionally one more for overall parity (n = 2^m).

The token's frequency rank is the message. The generator polynomial of designed distance 2t + 1 is the least common
multiple of the minimal polynomials of the first 2t powers of a primitive element :math:`\alpha` of GF(2^m). Of all t
the largest is taken that leaves enough message bits to tell V tokens apart: that code corrects most.

Polynomials over GF(2) are Python integers here, bit i the coefficient of x^i.
"""

import torch
from torch import Tensor

from ecoc.codes.convolutional import integer_bits

# x^m + ... + 1, primitive over GF(2), for m = 2 to 13
PRIMITIVE = (0x7, 0xB, 0x13, 0x25, 0x43, 0x89, 0x11D, 0x211, 0x409, 0x805, 0x1053, 0x201B)


def bch_codewords(rank: Tensor, bits: int) -> Tensor:
    """Bool codewords ``(V, bits)`` for ``bits`` = 2^m - 1, or 2^m with a parity bit."""
    needed = max(1, (len(rank) - 1).bit_length())
    degree = bits.bit_length() - 1 if bits & (bits - 1) == 0 else bits.bit_length()
    length = 2**degree - 1
    if bits not in (length, length + 1) or not 2 <= degree <= len(PRIMITIVE) + 1 or length < needed:
        lengths = [2**m - 1 for m in range(2, len(PRIMITIVE) + 2) if 2**m - 1 >= needed]
        raise ValueError(f"bits={bits} is no BCH length: choose one of {lengths}, or one more for a parity bit")
    generator = generator_polynomial(degree, needed)
    message_bits = length - generator.bit_length() + 1
    shifts = (generator << shift for shift in reversed(range(message_bits)))
    matrix = torch.tensor([[int(digit) for digit in f"{row:0{length}b}"] for row in shifts], dtype=torch.float32)
    words = torch.empty(len(rank), bits, dtype=torch.bool)
    for start in range(0, len(rank), 8192):  # sums of at most 8191 ones: exact in float32
        message = integer_bits(rank[start : start + 8192].long(), message_bits)
        some = message.float() @ matrix % 2
        if bits > length:
            some = torch.cat([some, some.sum(-1, keepdim=True) % 2], -1)
        words[start : start + 8192] = some.bool()
    return words


def generator_polynomial(degree: int, message_bits: int) -> int:
    """Generator of the BCH code of length 2^degree - 1 with the largest distance and at least `message_bits`."""
    length = 2**degree - 1
    power = _powers(degree)
    generator, covered = 1, set[int]()
    for exponent in range(1, length, 2):  # even powers are conjugates of odd ones
        if exponent in covered:
            continue
        conjugates = {exponent * 2**i % length for i in range(degree)}
        longer = _multiply(generator, _minimal_polynomial(conjugates, power))
        if length - longer.bit_length() + 1 < message_bits:
            break
        generator, covered = longer, covered | conjugates
    return generator


def _powers(degree: int) -> list[int]:
    """alpha^0, alpha^1, ... as field elements."""
    elements = [1]
    for _ in range(2**degree - 2):
        doubled = elements[-1] << 1
        elements.append(doubled ^ PRIMITIVE[degree - 2] if doubled >> degree else doubled)
    return elements


def _minimal_polynomial(conjugates: set[int], power: list[int]) -> int:
    """Product of x - alpha^j over the conjugates: its coefficients are 0 or 1."""
    logarithm = {element: exponent for exponent, element in enumerate(power)}
    coefficients = [1]  # over the field, lowest degree first
    for exponent in conjugates:
        times_root = [power[(logarithm[c] + exponent) % len(power)] if c else 0 for c in coefficients]
        coefficients = [a ^ b for a, b in zip([0, *coefficients], [*times_root, 0], strict=True)]
    return sum(c << i for i, c in enumerate(coefficients))


def _multiply(a: int, b: int) -> int:
    product = 0
    while b:
        product ^= a if b & 1 else 0
        a, b = a << 1, b >> 1
    return product
