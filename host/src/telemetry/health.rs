//! Whether a host is ready, and why it is not.

use polity_core::controller::lease::LeaseProblem;

use crate::engine::View;

/// How a host stands, for a probe and for a person.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Readiness {
    /// Why it is not ready; empty if it is.
    pub(super) reasons: Vec<String>,
    /// What is wrong with single bindings. They are their owners' to mend, and take nobody else's host away.
    pub(super) notes: Vec<String>,
}

/// `has_begun`: it was ready before, so that a binding which is loaded again changes nothing.
pub(super) fn readiness(view: &View, has_begun: bool) -> Readiness {
    let mut readiness = Readiness::default();
    if !has_begun && view.loading > 0 {
        let loading = view.loading;
        let reason = format!("bindings are being listed and loaded: {loading} to go");
        readiness.reasons.push(reason);
    }
    // Who waits for the lease of another host is ready to take over.
    if let Some(LeaseProblem::Failing(failure)) = &view.lease {
        let reason = format!("the lease cannot be read or renewed: {failure}");
        readiness.reasons.push(reason);
    }
    for (name, why) in &view.unloaded {
        readiness
            .notes
            .push(format!("binding {name} is not loaded: {why}"));
    }
    for name in &view.unsynced {
        let why = "its objects are not all known yet";
        readiness.notes.push(format!("binding {name}: {why}"));
    }
    readiness
}

impl std::fmt::Display for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.reasons.is_empty() {
            writeln!(f, "ready")?;
        } else {
            writeln!(f, "not ready")?;
        }
        for reason in &self.reasons {
            writeln!(f, "- {}", crate::display::printable(reason))?;
        }
        for note in &self.notes {
            writeln!(f, "note: {}", crate::display::printable(note))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polity_core::contract::{Code, Failure};

    #[test]
    fn a_host_that_loads_its_first_bindings_is_not_ready_and_one_that_loads_them_again_is() {
        let view = View {
            loading: 2,
            ..View::default()
        };
        let first = readiness(&view, false);
        let expected = ["bindings are being listed and loaded: 2 to go"];
        assert_eq!(first.reasons, expected);
        assert!(first.to_string().starts_with("not ready\n- bindings"));
        assert_eq!(readiness(&view, true), Readiness::default());
    }

    #[test]
    fn a_lease_that_another_host_holds_keeps_nobody_from_being_ready_and_one_that_fails_does() {
        let with = |trouble| View {
            lease: Some(trouble),
            ..View::default()
        };
        let held = with(LeaseProblem::HeldBy("other".into()));
        assert!(readiness(&held, true).reasons.is_empty());
        let failure = Failure::new(Code::PermissionDenied, "forbidden".to_owned());
        let failing = with(LeaseProblem::Failing(failure));
        assert_eq!(readiness(&failing, true).reasons.len(), 1);
    }

    #[test]
    fn a_binding_that_does_not_load_is_a_note_and_takes_the_host_from_nobody() {
        let view = View {
            unloaded: [("b".to_owned(), "no such file".to_owned())].into(),
            unsynced: vec!["c".to_owned()],
            ..View::default()
        };
        let readiness = readiness(&view, false);
        assert!(readiness.reasons.is_empty());
        assert_eq!(readiness.notes.len(), 2);
    }
}
