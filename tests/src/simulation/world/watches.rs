//! Watches: they lag, break and list again.

use polity_core::call::{Scope, WatchEvent};
use polity_core::key::ObjectKey;
use polity_core::object::{Object, ResourceVersion};
use polity_core::time::Boot;

use super::{Event, World};
use crate::simulation::oracle::{Instant, Oracle, Verdict};
use crate::simulation::store::{Change, Place};

impl World<'_> {
    /// A watch lists, and follows what happens from then on.
    pub(super) fn list(&mut self, host: usize, life: u32, connection: u64, scope: Scope) {
        let lag = self.lag();
        let process = &mut self.hosts[host];
        let Some(watch) = process.watches.get_mut(&scope).filter(|_| process.life == life) else {
            return;
        };
        if watch.connection != connection {
            return;
        }
        watch.live = true;
        watch.said = (watch.said + 1).max(self.now + lag);
        let at = watch.said;
        let version = self.view();
        let objects = if version == self.store.version() {
            self.store
                .all()
                .map(|(at, object)| (at.clone(), object.clone()))
                .collect()
        } else {
            self.store.as_of(version.0)
        };
        let objects = objects
            .into_iter()
            .filter(|(at, object)| covers(&scope, at, object));
        let objects = objects.map(|(_, object)| object).collect();
        let author = &self.hosts[host].identity;
        let unseen = self
            .store
            .log()
            .iter()
            .rev()
            .take_while(|change| change.version > version.0);
        if unseen.into_iter().any(|change| change.author == *author) {
            self.oracle
                .reached
                .insert("a watch listed what is older than a write of its own host");
        }
        let event = WatchEvent::Listed { objects, version };
        self.schedule(at, Event::Said(host, life, connection, scope.clone(), event));
        // What the list is too old to hold comes after it.
        let log = self.store.log();
        let after = log[log.partition_point(|change| change.version <= version.0)..self.shown.min(log.len())]
            .to_vec();
        for change in after
            .iter()
            .filter(|change| covers(&scope, &change.place, &change.shown))
        {
            self.say(host, &scope, change);
        }
    }

    /// The version that a list shows: of a watch cache that may be behind.
    fn view(&mut self) -> ResourceVersion {
        let behind = self.scenario.views.behind;
        if self.calm || behind == 0 {
            return self.store.version();
        }
        let then = self.now.saturating_sub(self.chance.between(0, behind));
        let made = self.changed_at.partition_point(|(at, _)| *at <= then);
        let shown = made.checked_sub(1).map_or(0, |index| self.changed_at[index].1);
        if made == self.changed_at.len() {
            self.store.version()
        } else {
            ResourceVersion(shown)
        }
    }

    /// A watch says what changed.
    fn say(&mut self, host: usize, scope: &Scope, change: &Change) {
        let lag = self.lag();
        let (now, process) = (self.now, &mut self.hosts[host]);
        let Some(watch) = process.watches.get_mut(scope) else {
            return;
        };
        watch.said = (watch.said + 1).max(now + lag);
        let (at, connection, life) = (watch.said, watch.connection, process.life);
        let event = match change.after {
            Some(_) => WatchEvent::Applied(change.shown.clone()),
            None => WatchEvent::Deleted(change.shown.clone()),
        };
        self.schedule(at, Event::Said(host, life, connection, scope.clone(), event));
    }

    /// A watch lists anew, without having said that it broke.
    pub(super) fn relist(&mut self, host: usize) {
        let live = self.hosts[host].watches.iter().filter(|(_, watch)| watch.live);
        let live: Vec<Scope> = live.map(|(scope, _)| scope.clone()).collect();
        if live.is_empty() {
            return;
        }
        let scope = live[self.chance.between(0, live.len() as u64 - 1) as usize].clone();
        let at = self.now + self.chance.between(0, 30);
        let process = &mut self.hosts[host];
        if let Some(watch) = process.watches.get_mut(&scope) {
            (watch.connection, watch.live) = (watch.connection + 1, false);
            self.oracle
                .reached
                .insert("a watch listed anew in the middle of a pass");
            let (life, connection) = (process.life, watch.connection);
            self.schedule(at, Event::List(host, life, connection, scope));
        }
    }

    pub(super) fn lag(&mut self) -> u64 {
        let most = if self.calm {
            20
        } else {
            self.scenario.rates.watch_lag
        };
        self.chance.between(0, most)
    }

    /// Shows new changes to all watches and to the oracle.
    pub(super) fn observe(&mut self) -> Verdict {
        while let Some(change) = self.store.log().get(self.shown).cloned() {
            self.shown += 1;
            self.changed_at.push((self.now, change.version));
            let by_host = change.author.starts_with("host-");
            self.oracle
                .changed(self.now, &change, by_host, self.store.log())?;
            if change.after.is_none() {
                let unix = self.unix();
                let vms = self.sim.vms(unix);
                let instant = Instant {
                    now: self.now,
                    store: &self.store,
                };
                self.oracle.no_leak(&instant, &vms)?;
            }
            for host in 0..self.hosts.len() {
                let scopes: Vec<Scope> = self.hosts[host]
                    .watches
                    .iter()
                    .filter(|(scope, watch)| watch.live && covers(scope, &change.place, &change.shown))
                    .map(|(scope, _)| scope.clone())
                    .collect();
                for scope in scopes {
                    self.say(host, &scope, &change);
                }
            }
        }
        if self.sim.effects().len() > self.effects {
            let unix = self.unix();
            let vms = self.sim.vms(unix);
            self.effects = self.sim.effects().len();
            let instant = Instant {
                now: self.now,
                store: &self.store,
            };
            self.oracle.effects(&instant, self.sim.effects(), &vms)?;
        }
        Ok(())
    }

    pub(super) fn cut_watches(&mut self, host: usize) {
        let life = self.hosts[host].life;
        let scopes: Vec<Scope> = self.hosts[host].watches.keys().cloned().collect();
        for scope in scopes {
            let soon = self.chance.between(0, 3_000);
            let later = soon + self.chance.between(1, 8_000);
            let Some(watch) = self.hosts[host].watches.get_mut(&scope) else {
                continue;
            };
            watch.connection += 1;
            watch.live = false;
            let connection = watch.connection;
            let failed = WatchEvent::Failed("the connection broke".into());
            let said = Event::Said(host, life, connection, scope.clone(), failed);
            self.schedule(self.now + soon, said);
            self.schedule(self.now + later, Event::List(host, life, connection, scope));
        }
    }
}

pub(super) fn shown(
    oracle: &mut Oracle,
    (now, boot): (u64, Boot),
    host: &str,
    scope: &Scope,
    event: &WatchEvent,
) {
    match event {
        WatchEvent::Listed { objects, .. } => {
            oracle.disturbs(host, boot);
            oracle.lists(now, host, &scope.kind.kind);
            objects.iter().for_each(|o| oracle.shows(now, host, o));
        }
        WatchEvent::Applied(object) => oracle.shows(now, host, object),
        WatchEvent::Deleted(object) => oracle.shows(now, host, object),
        WatchEvent::Failed(_) => oracle.disturbs(host, boot),
    }
}

pub(super) fn covers(scope: &Scope, at: &Place, object: &Object) -> bool {
    let on_node = |node: &String| object.tree()["spec"]["nodeName"] == **node;
    scope.kind.kind == at.0
        && scope.covers_place(&ObjectKey::new(Some(&at.1), &at.2))
        && scope.node.as_ref().is_none_or(on_node)
}
