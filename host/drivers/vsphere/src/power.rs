//! Power states.

/// A power state in the words of the catalogue; `None` if the state is unknown.
pub(crate) fn shown(state: &str) -> Option<&'static str> {
    match state {
        "poweredOn" => Some("on"),
        "poweredOff" => Some("off"),
        "suspended" => Some("suspended"),
        _ => None,
    }
}
