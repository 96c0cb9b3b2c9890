//! Guards that tests take away one by one, to see that they notice. Without the feature `simulation` all of them stand, and
//! no code asks.

/// What a guard guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// A create is absent only if somebody could look, and found nothing.
    AbsentTakesALook,
    /// A machine is rebooted only by who knows which boot it is.
    RebootsNameTheBoot,
}

/// The guards that stand: all of them, but for one that a test took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    #[cfg(feature = "simulation")]
    gone: Option<Guard>,
}

impl Guards {
    /// All but this one.
    #[cfg(feature = "simulation")]
    pub fn without(guard: Guard) -> Self {
        Guards { gone: Some(guard) }
    }

    /// Whether a guard stands.
    #[cfg(feature = "simulation")]
    pub(crate) fn stand(self, guard: Guard) -> bool {
        self.gone != Some(guard)
    }

    /// Whether a guard stands.
    #[cfg(not(feature = "simulation"))]
    pub(crate) fn stand(self, _: Guard) -> bool {
        true
    }
}
