//! Combines several events into one action (coalescing rules 0 to 6).

use crate::letters::Action;

/// Takes the events from the queue that the next action covers, and returns that action.
///
/// Events that the chosen action covers are dropped. The first event that it does not cover stays, with all later ones.
pub fn coalesce(mut action: Action, queue: &mut Vec<Action>) -> Action {
    use Action::{Create, Delete, Poll, Rebuild, Update};
    while let Some(head) = queue.first().copied() {
        if queue.contains(&Delete) {
            // A deletion makes all other events meaningless. It stays in the queue, because a deletion cannot be
            // undone.
            return Delete;
        }
        match (action, head) {
            (Update, Create) | (Create | Update, Rebuild) => action = head,
            (Create, Update) | (_, Poll) => {}
            (Poll, _) => action = head,
            (action, head) if action == head => {}
            _ => return action,
        }
        queue.remove(0);
    }
    action
}
