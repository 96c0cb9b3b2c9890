//! Watches: they lag, break and list again.

use polity_core::call::{Scope, WatchEvent};

use super::{Happening, World};
use crate::simulation::oracle::{Instant, Oracle, Verdict};
use crate::simulation::store::Place;

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
        let objects = self
            .store
            .all()
            .filter(|(at, _)| covers(&scope, at))
            .map(|(_, object)| object.clone())
            .collect();
        let version = self.store.version();
        watch.live = true;
        watch.said = (watch.said + 1).max(self.now + lag);
        let at = watch.said;
        let event = WatchEvent::Listed { objects, version };
        self.schedule(at, Happening::Said(host, life, connection, scope, event));
    }

    pub(super) fn lag(&mut self) -> u64 {
        let most = if self.calm {
            20
        } else {
            self.scenario.rates.watch_lag
        };
        self.chance.between(0, most)
    }

    /// Shows what changed to whoever watches, and to the oracle.
    pub(super) fn observe(&mut self) -> Verdict {
        while let Some(change) = self.store.log().get(self.shown).cloned() {
            self.shown += 1;
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
                let life = self.hosts[host].life;
                let scopes: Vec<Scope> = self.hosts[host]
                    .watches
                    .iter()
                    .filter(|(scope, watch)| watch.live && covers(scope, &change.place))
                    .map(|(scope, _)| scope.clone())
                    .collect();
                for scope in scopes {
                    let lag = self.lag();
                    let Some(watch) = self.hosts[host].watches.get_mut(&scope) else {
                        continue;
                    };
                    watch.said = (watch.said + 1).max(self.now + lag);
                    let (at, connection) = (watch.said, watch.connection);
                    let event = match change.after {
                        Some(_) => WatchEvent::Applied(change.shown.clone()),
                        None => WatchEvent::Deleted(change.shown.clone()),
                    };
                    self.schedule(at, Happening::Said(host, life, connection, scope, event));
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
            let said = Happening::Said(host, life, connection, scope.clone(), failed);
            self.schedule(self.now + soon, said);
            self.schedule(self.now + later, Happening::List(host, life, connection, scope));
        }
    }
}

pub(super) fn shown(oracle: &mut Oracle, now: u64, host: &str, event: &WatchEvent) {
    match event {
        WatchEvent::Listed { objects, .. } => {
            oracle.lists(now, host);
            objects.iter().for_each(|o| oracle.shows(now, host, o));
        }
        WatchEvent::Applied(object) => oracle.shows(now, host, object),
        WatchEvent::Deleted(object) => oracle.shows(now, host, object),
        WatchEvent::Failed(_) => {}
    }
}

pub(super) fn covers(scope: &Scope, at: &Place) -> bool {
    scope.kind.kind == at.0 && scope.covers_place(&(Some(at.1.clone()), at.2.clone()))
}
