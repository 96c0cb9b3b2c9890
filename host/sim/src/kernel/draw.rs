//! Chance from a seed.
//!
//! A draw is a digest of the seed and of its purpose, and not the next number of one stream. So what happens
//! to one object does not depend on how its calls interleave with those of others.

use super::Kernel;

/// A number that looks random.
pub(crate) fn draw(seed: u64, purpose: &str, subject: &str, nth: u64) -> u64 {
    let bytes = purpose
        .bytes()
        .chain([0xff])
        .chain(subject.bytes())
        .chain([0xff])
        .chain(nth.to_le_bytes());
    // FNV-1a, then the finaliser of SplitMix64.
    let mut z = bytes.fold(seed ^ 0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `true` with this probability.
pub(crate) fn chance(draw: u64, probability: f64) -> bool {
    // The upper 53 bits, as many as an f64 holds exactly.
    ((draw >> 11) as f64 / (1u64 << 53) as f64) < probability
}

/// A UUID that depends only on the seed and the subject.
pub(crate) fn uuid(seed: u64, subject: &str) -> String {
    let (high, low) = (draw(seed, "uuid", subject, 0), draw(seed, "uuid", subject, 1));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | ((low >> 48) & 0x3fff),
        low & 0xffff_ffff_ffff
    )
}

impl<E, Q> Kernel<E, Q> {
    /// The owner's next number.
    pub(crate) fn draw_for(&mut self, owner: &str) -> u64 {
        let nth = self.draws.get_or_default(owner.to_owned());
        *nth += 1;
        draw(self.head.seed, "call", owner, *nth)
    }

    /// A number that is always the same for this purpose.
    pub(crate) fn draw(&self, purpose: &str, subject: &str, nth: u64) -> u64 {
        draw(self.head.seed, purpose, subject, nth)
    }

    /// A UUID that is always the same for this subject.
    pub(crate) fn uuid(&self, subject: &str) -> String {
        uuid(self.head.seed, subject)
    }

    /// The moment that a look at this time sees: up to `lag` ago. Each look draws it anew, so a later look
    /// may see an earlier moment.
    pub(crate) fn look(&mut self, at: u64, owner: &str) -> u64 {
        let draw = self.draw_for(owner);
        at.saturating_sub(draw % (self.settings.lag + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_differ_by_seed_purpose_subject_and_count() {
        let all = [
            draw(1, "a", "b", 0),
            draw(2, "a", "b", 0),
            draw(1, "ab", "", 0),
            draw(1, "a", "c", 0),
            draw(1, "a", "b", 1),
        ];
        for (i, x) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|y| x != y));
        }
        assert_eq!(draw(1, "a", "b", 0), all[0]);
    }

    #[test]
    fn chances_come_out_about_as_often_as_said() {
        let hits = (0..10_000)
            .filter(|n| chance(draw(7, "chance", "", *n), 0.25))
            .count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!(!chance(u64::MAX, 0.999) && chance(0, 0.001) && !chance(0, 0.0));
    }
}
