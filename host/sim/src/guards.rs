//! Guards that tests remove one by one, to check that the tests notice.

/// A guard of the simulated cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// A create is absent only if a look was possible and found nothing.
    AbsentTakesALook,
    /// A reboot request must name the boot that it ends.
    RebootsNameTheBoot,
}

/// The guards of a simulated cloud.
pub type Guards = polity_core::controller::Guards<Guard>;
