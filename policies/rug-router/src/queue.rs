//! Many events, one action (coalescing rules 0 to 6).

use crate::letters::Action;

/// Takes from the queue what the next action answers for, and says which that is.
///
/// Events that the chosen action deals with as well are dropped; the first that it does not deal with stays.
pub fn coalesce(mut action: Action, queue: &mut Vec<Action>) -> Action {
    use Action::{Create, Delete, Poll, Rebuild, Update};
    while let Some(head) = queue.first().copied() {
        if queue.contains(&Delete) {
            // Nothing before it matters any more, and nothing after it. It stays: there is no way back.
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
