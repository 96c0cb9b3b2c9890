//! A host: the one assembly of its parts, and how it ends.

use anyhow::{Context as _, Result, anyhow};
use tokio::task::{AbortHandle, JoinHandle};

use crate::config::Config;
use crate::engine::{Engine, Handle};
use crate::sim;

/// A host.
pub struct Host;

impl Host {
    /// Starts one, which runs until it is told to stop and nothing is in flight any more.
    pub fn start(config: Config) -> Running {
        Host::start_changed(config, |_| {})
    }

    /// Starts one without a guard of its core.
    #[cfg(feature = "simulation")]
    pub fn start_unguarded(config: Config, guards: polity_core::controller::Guards) -> Running {
        Host::start_changed(config, |engine| engine.set_guards(guards))
    }

    fn start_changed(config: Config, change: impl FnOnce(&mut Engine)) -> Running {
        let clock = config.clock.clone();
        let kubelets = config.kubelets.then(|| {
            let (cluster, clouds) = (config.cluster.clone(), config.clouds.clone());
            tokio::spawn(sim::play_kubelets(clock.clone(), cluster, clouds)).abort_handle()
        });
        let (mut engine, handle) = Engine::new(config);
        change(&mut engine);
        let engine = tokio::spawn(engine.run());
        clock.start();
        Running {
            engine,
            kubelets,
            handle,
        }
    }
}

/// A host that runs.
pub struct Running {
    engine: JoinHandle<()>,
    kubelets: Option<AbortHandle>,
    handle: Handle,
}

/// How far a shutdown has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// What is in flight is being finished.
    Finishing,
    /// What is still in flight is cut: what was sent may still land, then the lease is given up.
    Cutting,
}

impl Running {
    /// Reaches it.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits for the end of a host that nobody told to stop: it does nothing from then on, and whoever started it must not go
    /// on as if it did.
    pub async fn ended_by_itself(&mut self) -> anyhow::Error {
        let why = match (&mut self.engine).await {
            Ok(()) => "nothing reaches it any more".to_owned(),
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => format!("it panicked: {}", said(&*panic)),
                Err(ended) => ended.to_string(),
            },
        };
        anyhow!("the event loop of the host ended before it was told to; this is a bug of Polity: {why}")
    }

    /// Ends it: what is in flight is finished as long as `patience` for that lasts, and then cut. True once it has ended and
    /// given its lease up; false if patience for what was cut came to its end, too.
    ///
    /// # Errors
    /// If it failed on its way.
    pub async fn shutdown(mut self, mut patience: impl AsyncFnMut(Stage)) -> Result<bool> {
        for stage in [Stage::Finishing, Stage::Cutting] {
            match stage {
                Stage::Finishing => self.handle.stop(),
                Stage::Cutting => self.handle.cut(),
            }
            tokio::select! {
                ended = &mut self.engine => {
                    ended.context("the event loop of the host failed while it stopped")?;
                    return Ok(true);
                }
                () = patience(stage) => {}
            }
        }
        Ok(false)
    }

    /// Waits for the end of a host that was told to stop.
    ///
    /// # Errors
    /// If it failed on its way.
    pub async fn stopped(mut self) -> Result<()> {
        let ended = (&mut self.engine).await;
        ended.context("the event loop of the host failed while it stopped")
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.engine.is_finished()
    }

    /// Ends it in the middle, as a crash does.
    pub fn abort(&self) {
        self.engine.abort();
    }

    /// What ends it in the middle.
    pub fn abort_handle(&self) -> AbortHandle {
        self.engine.abort_handle()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kubelets.iter().for_each(AbortHandle::abort);
    }
}

/// What a panic said.
fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a word")
}
