//! The host processes of a simulated world, which end and are started again.

use polity_core::record::PassRecord;

use super::{Host, Site};
use crate::simulation::scenario::Rates;
use crate::simulation::seed::Chance;

/// Processes that compete for one lease, and their supervisor.
pub struct Hosts {
    running: Vec<Option<Host>>,
    rates: Rates,
    chance: Chance,
    /// Of processes that ended.
    news: Vec<PassRecord>,
}

impl Hosts {
    /// So many processes, which do not run yet, on connections that fail as often as this.
    pub fn new(count: usize, rates: Rates, chance: Chance) -> Self {
        Hosts {
            running: (0..count).map(|_| None).collect(),
            rates,
            chance,
            news: Vec::new(),
        }
    }

    /// Starts those that do not run, or have crashed.
    pub fn supervise(&mut self, site: &Site) {
        for host in &mut self.running {
            if let Some(ended) = host.take_if(|host| host.has_ended()) {
                self.news.extend(ended.news());
            }
            if host.is_none() {
                let new = site.start();
                inject_faults(&new, self.rates, &mut self.chance);
                *host = Some(new);
            }
        }
    }

    /// The watches of one of them break.
    pub fn cut_watches(&self, index: usize) {
        if let Some(host) = &self.running[index] {
            host.wire.cut();
        }
    }

    /// One of them crashes.
    pub async fn crash(&mut self, index: usize) {
        if let Some(host) = self.running[index].take() {
            self.news.extend(host.news());
            host.crash().await;
        }
    }

    /// One of them is told to stop.
    pub async fn stop(&mut self, index: usize) {
        if let Some(host) = self.running[index].take() {
            self.news.extend(host.news());
            host.stop().await;
        }
    }

    /// Nothing goes wrong any more, and one of them is enough.
    pub async fn calm(&mut self, site: &Site) -> Host {
        let mut left: Option<Host> = None;
        for host in std::mem::take(&mut self.running).into_iter().flatten() {
            if host.has_ended() {
                self.news.extend(host.news());
                continue;
            }
            calm(&host);
            match &left {
                None => left = Some(host),
                Some(_) => {
                    self.news.extend(host.news());
                    host.stop().await;
                }
            }
        }
        left.unwrap_or_else(|| site.start())
    }

    /// The passes that ended since this was asked last, of all of them.
    pub fn news(&mut self) -> Vec<PassRecord> {
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.running.iter().flatten().flat_map(Host::news));
        news
    }
}

/// So much goes wrong with a process from now on. After one of its outputs it crashes.
pub(super) fn inject_faults(host: &Host, rates: Rates, chance: &mut Chance) {
    let crashes = rates.crash > 0;
    let outputs = crashes.then(|| chance.between(1, (1_000 / rates.crash).max(1)));
    host.wire.outputs().end_after(outputs);
    host.wire.inject(Some((rates, Chance::new(chance.draw(), 1))));
}

/// Nothing goes wrong with it any more.
pub(super) fn calm(host: &Host) {
    host.wire.outputs().end_after(None);
    host.wire.inject(None);
    // What lags behind for as long as it lasts is begun anew.
    host.wire.cut();
}
