//! Chance from a seed: SplitMix64, which is enough to schedule with and the same on every machine.

/// A stream of numbers that depends on nothing but its seed.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream of a seed; `purpose` gives one seed several streams.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut chance = Chance(seed ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03));
        chance.draw();
        chance
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low + 1)
    }

    /// True as often as `per_mille` of a thousand times.
    pub fn one_in(&mut self, per_mille: u64) -> bool {
        self.draw() % 1_000 < per_mille
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.draw() % all.len() as u64) as usize]
    }
}
