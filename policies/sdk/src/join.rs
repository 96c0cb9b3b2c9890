//! Batches: several requests awaited together are answered in one round trip.
//!
//! ```
//! # use polity_sdk::cloud::vm;
//! # use polity_sdk::prelude::*;
//! # async fn both(cx: Context<machine_doc::M>) -> Result<(), Failure> {
//! let (vm, nics) = join!(cx.ask(vm::get("vm-1")), cx.ask(vm::nics("vm-1")));
//! # let _ = (vm?, nics?);
//! let all = join_all(["vm-1", "vm-2"].map(|id| cx.ask(vm::power(id)))).await;
//! # let _ = all; Ok(())
//! # }
//! # mod machine_doc {
//! #   use polity_sdk::prelude::*;
//! #   #[derive(Clone, PartialEq, Serialize, Deserialize)] pub struct M { metadata: Metadata }
//! #   impl Kind for M {
//! #     const API_VERSION: &'static str = "v1"; const KIND: &'static str = "M";
//! #     fn metadata(&self) -> &Metadata { &self.metadata }
//! #   }
//! # }
//! ```
//!
//! There is deliberately no `select!`: which branch is ready first may differ between two steps of a pass.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Awaits futures together; the value is a tuple of their outputs.
pub use crate::polity_sdk_join as join;

#[doc(hidden)]
#[macro_export]
macro_rules! polity_sdk_join {
    ($($future:expr),+ $(,)?) => {
        $crate::join::Joined::of(($($crate::join::Slot::of($future),)+)).await
    };
}

/// Awaits any number of futures together; the value holds their outputs in the same order.
pub fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> impl Future<Output = Vec<F::Output>> {
    let slots: Vec<Slot<F>> = futures.into_iter().map(Slot::of).collect();
    Joined::of(slots)
}

/// A future, or its output once the future is ready.
#[doc(hidden)]
pub enum Slot<F: Future> {
    Waiting(Pin<Box<F>>),
    Ready(Option<F::Output>),
}

/// The future is boxed, and the output is never pinned.
impl<F: Future> Unpin for Slot<F> {}

impl<F: Future> Slot<F> {
    #[doc(hidden)]
    pub fn of(future: F) -> Self {
        Slot::Waiting(Box::pin(future))
    }

    /// Polls the future. Returns whether its output is there.
    fn poll(&mut self, task: &mut Context<'_>) -> bool {
        if let Slot::Waiting(future) = self {
            match future.as_mut().poll(task) {
                Poll::Ready(output) => *self = Slot::Ready(Some(output)),
                Poll::Pending => return false,
            }
        }
        true
    }

    fn take(&mut self) -> F::Output {
        match self {
            Slot::Ready(output) => output
                .take()
                .expect("a joined future is polled until it is ready, once"),
            Slot::Waiting(_) => unreachable!("outputs are taken when all are ready"),
        }
    }
}

/// Futures that are awaited together.
#[doc(hidden)]
pub trait Slots: Unpin {
    type Output;
    fn poll(&mut self, task: &mut Context<'_>) -> bool;
    fn take(&mut self) -> Self::Output;
}

/// Polls every slot, ready or not, so that each registers its request.
#[doc(hidden)]
pub struct Joined<S>(S);

impl<S: Slots> Joined<S> {
    #[doc(hidden)]
    pub fn of(slots: S) -> Self {
        Joined(slots)
    }
}

impl<S: Slots> Future for Joined<S> {
    type Output = S::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<S::Output> {
        if self.0.poll(task) {
            Poll::Ready(self.0.take())
        } else {
            Poll::Pending
        }
    }
}

impl<F: Future> Slots for Vec<Slot<F>> {
    type Output = Vec<F::Output>;

    fn poll(&mut self, task: &mut Context<'_>) -> bool {
        let mut ready = true;
        for slot in self {
            ready &= slot.poll(task);
        }
        ready
    }

    fn take(&mut self) -> Self::Output {
        self.iter_mut().map(Slot::take).collect()
    }
}

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<$($name: Future),+> Slots for ($(Slot<$name>,)+) {
            type Output = ($($name::Output,)+);

            #[allow(non_snake_case, reason = "the type's name names its slot")]
            fn poll(&mut self, task: &mut Context<'_>) -> bool {
                let ($($name,)+) = self;
                let mut ready = true;
                $(ready &= $name.poll(task);)+
                ready
            }

            #[allow(non_snake_case, reason = "the type's name names its slot")]
            fn take(&mut self) -> Self::Output {
                let ($($name,)+) = self;
                ($($name.take(),)+)
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B D);
tuples!(A B D E);
tuples!(A B D E G);
tuples!(A B D E G H);
tuples!(A B D E G H I);
tuples!(A B D E G H I J);
