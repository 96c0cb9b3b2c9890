//! Digests of all parts of a text, each in constant time.
//!
//! The digest of bytes is the polynomial of the bytes at a random point, modulo a prime. Equal bytes have equal digests. Different
//! bytes of 64 KiB have the same digest once in 2⁴⁵ times, and nobody outside of this process can find two that have.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

/// A Mersenne prime.
const PRIME: u64 = (1 << 61) - 1;

/// The random point of this process.
static POINT: LazyLock<u64> = LazyLock::new(|| (RandomState::new().hash_one(()) % (PRIME - 512)) + 256);

/// The powers of small lengths.
static SMALL: LazyLock<[u64; 32]> = LazyLock::new(|| {
    let mut powers = [1; 32];
    for n in 1..powers.len() {
        powers[n] = times(powers[n - 1], *POINT);
    }
    powers
});

/// The digest of a text. The bytes of a block are computed on side by side, so it takes a fifth of the time of [`Prefixes`].
pub(crate) fn digest(text: &[u8]) -> u64 {
    const BLOCK: usize = 8;
    let powers = &*SMALL;
    let blocks = text.chunks_exact(BLOCK);
    let rest = blocks.remainder();
    let whole = blocks.fold(0, |last, block| {
        let each = block.iter().zip(powers[..BLOCK].iter().rev());
        let sum: u128 = each.map(|(byte, power)| value(*byte) * u128::from(*power)).sum();
        reduced(sum + u128::from(last) * u128::from(powers[BLOCK]))
    });
    rest.iter().copied().fold(whole, next)
}

/// How far apart the beginnings are whose digests are kept. With each of them, a text of 1 MiB takes 8 MiB.
const APART: usize = 4;

/// The digests of all beginnings of a text.
pub(crate) struct Prefixes<'a> {
    text: &'a [u8],
    /// Those of the beginnings that are so many times [`APART`] bytes long.
    some: Vec<u64>,
}

impl<'a> Prefixes<'a> {
    pub(crate) fn of(text: &'a [u8]) -> Self {
        let mut some = Vec::with_capacity(text.len() / APART + 1);
        let mut last = 0;
        some.push(last);
        for part in text.chunks_exact(APART) {
            last = part.iter().copied().fold(last, next);
            some.push(last);
        }
        Prefixes { text, some }
    }

    /// The digest of so many bytes from here on. `power` is the [`power`] of the length.
    pub(crate) fn digest(&self, from: usize, length: usize, power: u64) -> u64 {
        let before = times(self.prefix(from), power);
        plus(self.prefix(from + length), PRIME - before)
    }

    fn prefix(&self, length: usize) -> u64 {
        let known = length / APART;
        let rest = self.text[known * APART..length].iter().copied();
        rest.fold(self.some[known], next)
    }
}

/// The point to the power of a length.
pub(crate) fn power(length: usize) -> u64 {
    if let Some(small) = SMALL.get(length) {
        return *small;
    }
    let half = power(length / 2);
    let even = times(half, half);
    match length % 2 {
        0 => even,
        _ => times(even, *POINT),
    }
}

/// The digest of a text, made of that of all but its last byte.
fn next(last: u64, byte: u8) -> u64 {
    reduced(u128::from(last) * u128::from(*POINT) + value(byte))
}

/// A byte as a number that is not 0, so that zeros count.
fn value(byte: u8) -> u128 {
    u128::from(byte) + 1
}

fn plus(a: u64, b: u64) -> u64 {
    let sum = a + b;
    if sum >= PRIME { sum - PRIME } else { sum }
}

fn times(a: u64, b: u64) -> u64 {
    reduced(u128::from(a) * u128::from(b))
}

/// The remainder of a sum of at most two products.
fn reduced(sum: u128) -> u64 {
    let (low, high) = (sum as u64 & PRIME, (sum >> 61) as u64);
    // `high` may be a multiple of the prime with a rest.
    plus(low, plus(high & PRIME, high >> 61))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_parts_have_equal_digests_and_others_do_not() {
        let text = b"abcabcabd, and once more: abcabcabd \xff\x00\x00";
        let prefixes = Prefixes::of(text);
        for (a, from) in (0..text.len()).enumerate() {
            for b in 0..text.len() {
                for length in 1..=text.len() - from.max(b) {
                    let digest = |from| prefixes.digest(from, length, power(length));
                    let is_equal = text[a..a + length] == text[b..b + length];
                    assert_eq!(digest(a) == digest(b), is_equal, "{a} {b} {length}");
                    assert_eq!(digest(a), super::digest(&text[a..a + length]), "{a} {length}");
                }
            }
        }
    }
}
