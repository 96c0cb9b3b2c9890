//! Writes the Events of passes, beside the calls that passes wait for. A lost Event is accepted.
//!
//! Policies can say more than the API server takes. So tenant queues take turns, and what a tenant queue says beyond what may
//! wait is dropped, and counted.

use std::collections::BTreeMap;

use polity_core::controller::EventWrite;
use polity_core::fair::{FairQueue, Quota};

/// The Events in flight at the API server.
const PLACES: u64 = 4;
/// The most Events of a tenant queue that wait: those of four passes that each say as much as a pass may.
const WAITING: usize = 64;

/// The Events that are not written yet.
#[derive(Default)]
pub(crate) struct Events {
    queue: FairQueue<Box<EventWrite>>,
    /// How many were dropped, by binding.
    dropped: BTreeMap<String, u64>,
}

impl Events {
    /// Takes in an Event, unless too many of its tenant queue wait.
    pub(crate) fn push(&mut self, event: Box<EventWrite>) {
        let tenant_queue = event.tenant_queue.clone();
        if self.queue.waiting_of(&tenant_queue) < WAITING {
            self.queue.push(&tenant_queue, event);
        } else {
            *self.dropped.entry(event.binding.to_string()).or_default() += 1;
        }
    }

    /// The next Event that is to be written. The caller tells [`Events::written`] when it is.
    pub(crate) fn next(&mut self) -> Option<Box<EventWrite>> {
        let (_, _, event) = self.queue.next(Quota::new(PLACES))?;
        Some(event)
    }

    /// A write of this tenant queue has ended.
    pub(crate) fn written(&mut self, tenant_queue: &std::sync::Arc<str>) {
        self.queue.end(tenant_queue, 0);
    }

    /// Whether none waits and none is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many Events of a binding were dropped.
    pub(crate) fn dropped(&self, binding: &str) -> u64 {
        self.dropped.get(binding).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polity_core::call::Write;
    use polity_core::contract::{Event, EventType, Kind, ObjectRef};
    use polity_core::time::{Boot, Unix};

    use super::*;

    fn event(tenant_queue: &str) -> Box<EventWrite> {
        let kind = Kind {
            api_version: "v1".into(),
            kind: "Machine".into(),
        };
        Box::new(EventWrite {
            tenant_queue: tenant_queue.into(),
            binding: "machines".into(),
            begin_by: Boot::MAX,
            write: Write::Event {
                object: ObjectRef {
                    cluster: None,
                    kind,
                    namespace: None,
                    name: "m".into(),
                },
                uid: "u".into(),
                event: Event {
                    kind: EventType::Normal,
                    reason: "Said".into(),
                    message: "so".into(),
                },
                now: Unix(0),
            },
        })
    }

    #[test]
    fn whoever_says_too_much_loses_it_and_holds_up_nobody_else() {
        let mut events = Events::default();
        let greedy: Arc<str> = "greedy".into();
        (0..WAITING + 7).for_each(|_| events.push(event(&greedy)));
        assert_eq!((events.dropped("machines"), events.dropped("others")), (7, 0));
        let begun = std::iter::from_fn(|| events.next()).count();
        assert_eq!(begun as u64, PLACES - 1);
        events.push(event("polite"));
        let next = events.next().expect("a place is kept");
        assert_eq!(&*next.tenant_queue, "polite");
        assert!(events.next().is_none());
        events.written(&greedy);
        assert_eq!(events.next().map(|next| next.tenant_queue), Some(greedy.clone()));
        assert!(!events.is_idle());
    }
}
