//! One simulated host process: a controller of core, its clocks, and what the engine would hold for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use polity_core::call::{Call, CallId, Scope, Write};
use polity_core::controller::{Capacities, Controller, Guards, Input};
use polity_core::key::PassId;
use polity_core::time::{Boot, Now, Unix};

/// A host process and its successors at the same place.
pub struct Host {
    /// Counts the processes: what is addressed to an earlier one reaches nobody.
    pub life: u32,
    /// Differs between processes.
    pub identity: String,
    /// None while no process runs.
    pub controller: Option<Controller>,
    /// Its boot clock is ahead of the world by this.
    pub boot_offset: u64,
    /// Its unix clock is ahead of the world's by this.
    pub ahead: i64,
    /// Stands still: what reaches it waits.
    pub paused: bool,
    /// What waits.
    pub inbox: VecDeque<Input>,
    /// Its watches.
    pub watches: BTreeMap<Scope, Watch>,
    /// Calls that were neither cancelled nor answered, and whether each writes an object.
    pub calls: BTreeMap<CallId, Sort>,
    /// The passes that may hold texts of any size, with their tenant queues.
    pub large: BTreeMap<PassId, Arc<str>>,
    /// When the next tick is scheduled; world time.
    pub tick_at: u64,
}

/// A watch of one scope.
#[derive(Debug, Default)]
pub struct Watch {
    /// Counts the connections: what an earlier one had to say is lost.
    pub connection: u64,
    /// It listed and has not broken since.
    pub live: bool,
    /// What it says next is said after this; world time.
    pub said: u64,
}

/// So small that passes wait for one another.
pub const CAPACITIES: Capacities = Capacities {
    reads: 3,
    writes: 3,
    small: 2_000,
};
/// The large passes of a host, and those of one tenant queue.
const LARGE: (usize, usize) = (8, 6);

/// Which sort of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// It reads from the API server.
    Read,
    /// It makes or revokes a token.
    Token,
    /// It changes an object, of which a pass publishes something.
    Write,
    /// It changes an object as a policy asks.
    Act,
    /// Anything else.
    Other,
}

impl Sort {
    /// The sort of a call.
    pub fn of(call: &Call) -> Self {
        match call {
            Call::Read(_) => Sort::Read,
            Call::Mint(_) | Call::Revoke { .. } => Sort::Token,
            Call::Write(Write::Act(_)) => Sort::Act,
            Call::Write(_) => Sort::Write,
            Call::Step { .. }
            | Call::Decide { .. }
            | Call::Draft(_)
            | Call::Cloud(_)
            | Call::Prepare(_)
            | Call::Commit(_)
            | Call::Resolve { .. }
            | Call::Credential { .. }
            | Call::Lease(_) => Sort::Other,
        }
    }
}

impl Host {
    /// Whether more calls of the host are under way than there are places.
    pub fn overfills(&self) -> bool {
        let count = |sorts: &[Sort]| self.calls.values().filter(|sort| sorts.contains(sort)).count();
        let of_queue = |queue: &Arc<str>| self.large.values().filter(|other| *other == queue).count();
        let large = self.large.len() > LARGE.0 || self.large.values().any(|queue| of_queue(queue) > LARGE.1);
        large
            || count(&[Sort::Read]) > CAPACITIES.reads as usize
            || count(&[Sort::Write, Sort::Act, Sort::Token]) > CAPACITIES.writes as usize
    }

    /// A place where no process has run yet.
    pub fn new() -> Self {
        Host {
            life: 0,
            identity: String::new(),
            controller: None,
            boot_offset: 0,
            ahead: 0,
            paused: false,
            inbox: VecDeque::new(),
            watches: BTreeMap::new(),
            calls: BTreeMap::new(),
            large: BTreeMap::new(),
            tick_at: u64::MAX,
        }
    }

    /// Starts a process.
    pub fn start(&mut self, index: usize, boot_offset: u64, guards: Guards) {
        self.life += 1;
        self.identity = format!("host-{index}.{}", self.life);
        let mut controller = Controller::new(self.identity.clone()).with_capacities(CAPACITIES);
        controller.set_guards(guards);
        self.controller = Some(controller);
        self.boot_offset = boot_offset;
        self.tick_at = u64::MAX;
    }

    /// Ends the process: nothing of it is left but what it has sent.
    pub fn crash(&mut self) {
        self.controller = None;
        self.paused = false;
        self.inbox.clear();
        self.watches.clear();
        self.calls.clear();
        self.large.clear();
    }

    /// What its clocks show.
    pub fn clocks(&self, now: u64, unix: u64) -> Now {
        Now {
            boot: Boot(now + self.boot_offset),
            unix: Unix(unix.saturating_add_signed(self.ahead)),
        }
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}
