//! Guards that tests take away one by one, to see that they notice.

/// What a guard guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// A create is absent only if somebody could look, and found nothing.
    AbsentTakesALook,
    /// A machine is rebooted only by who knows which boot it is.
    RebootsNameTheBoot,
}

/// The guards of a simulated cloud.
pub type Guards = polity_core::controller::Guards<Guard>;
