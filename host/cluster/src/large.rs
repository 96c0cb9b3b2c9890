//! Work on large texts. It takes milliseconds, and until it is done nothing else that waits for the same thread of the
//! runtime goes on: not the watches, not the event loop. So a thread for blocking work does it.

use std::panic::resume_unwind;
use std::thread::available_parallelism;

use polity_core::call::Reply;
use polity_core::contract::Answer;
use polity_kube_rules::text;
use tokio::sync::Semaphore;

use crate::Cluster;

/// The most bytes of a text that is handled where it is: a few hundred microseconds.
const SMALL: usize = 32 << 10;

/// As many turns as there are processors. More threads would only hold up each other and everything else.
pub(crate) fn turns() -> Semaphore {
    Semaphore::new(available_parallelism().map_or(1, usize::from))
}

/// Does work on a text of so many bytes without waiting for a turn. A watch does it so: it reads one line at a time, and
/// the next lines, which others wait for, must not wait for the answers to calls as well.
pub(crate) async fn at_once<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes <= SMALL {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

impl Cluster {
    /// Does work on a text of so many bytes. If it is large, it waits for a turn.
    pub(crate) async fn in_turn<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let _turn = if bytes > SMALL {
            Some(self.turns.acquire().await)
        } else {
            None
        };
        at_once(bytes, work).await
    }

    /// The reply with an answer of this API server: a list, an object, or no object.
    pub async fn reply(&self, answer: Answer) -> Reply {
        let is_large = answer.as_ref().is_ok_and(|answer| text::is_longer(answer, SMALL));
        let bytes = if is_large { usize::MAX } else { 0 };
        self.in_turn(bytes, || Reply::objects(answer)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, widget};
    use futures::FutureExt as _;
    use serde_json::json;
    use std::panic::AssertUnwindSafe;
    use std::sync::mpsc;
    use std::thread;

    #[tokio::test]
    async fn work_on_a_large_text_holds_up_nothing_else_on_the_same_thread() {
        let cluster = Fake::serving([]).cluster();
        let (tell, told) = mpsc::channel();
        let large = cluster.in_turn(SMALL + 1, move || told.recv().is_ok());
        let (heard, said) = tokio::join!(large, async { tell.send(()) });
        assert!(heard && said.is_ok());
        let here = thread::current().id();
        let at_once = cluster.in_turn(SMALL, move || thread::current().id() == here);
        assert_eq!(
            at_once.now_or_never(),
            Some(true),
            "a small text is no reason to wait"
        );
    }

    #[tokio::test]
    async fn only_so_many_large_texts_are_worked_on_as_there_are_turns() {
        let cluster = Fake::serving([]).cluster();
        let all = u32::try_from(cluster.turns.available_permits()).expect("a few");
        let turns = cluster.turns.acquire_many(all).await.expect("never closed");
        let mut waits = std::pin::pin!(cluster.in_turn(SMALL + 1, || ()));
        assert_eq!(waits.as_mut().now_or_never(), None);
        drop(turns);
        waits.await;
    }

    #[tokio::test]
    async fn a_bug_in_work_on_a_large_text_is_not_taken_for_an_answer() {
        let cluster = Fake::serving([]).cluster();
        let work = cluster.in_turn(SMALL + 1, || panic!("a bug"));
        assert!(AssertUnwindSafe(work).catch_unwind().await.is_err());
    }

    #[tokio::test]
    async fn the_reply_with_a_large_object_is_that_with_a_small_one() {
        let cluster = Fake::serving([]).cluster();
        for bytes in [1, 2 * SMALL] {
            let mut object = widget("x", 1);
            object["spec"] = json!("x".repeat(bytes));
            let Reply::Objects(Ok(objects)) = cluster.reply(Ok(object.clone())).await else {
                panic!("an object");
            };
            assert_eq!(objects.len(), 1);
            assert_eq!(objects[0].tree(), object);
        }
    }
}
