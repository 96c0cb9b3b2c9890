//! The one assembly of a host from its parts, and how a host ends.

use anyhow::{Context as _, Result, anyhow};
use tokio::task::{AbortHandle, JoinHandle};

use crate::config::HostConfig;
use crate::engine::{Engine, Handle};

/// Starts hosts.
pub struct Host;

impl Host {
    /// Starts a host. It runs until it is told to stop and no pass is in flight any more.
    pub fn start(config: HostConfig) -> Running {
        Host::start_changed(config, |_| {})
    }

    /// Starts a host whose core lacks one of its guards, for negative tests.
    #[cfg(feature = "simulation")]
    pub fn start_unguarded(config: HostConfig, guards: polity_core::controller::Guards) -> Running {
        Host::start_changed(config, |engine| engine.set_guards(guards))
    }

    fn start_changed(mut config: HostConfig, change: impl FnOnce(&mut Engine)) -> Running {
        let clock = config.clock.clone();
        let beside = config.beside.take();
        let beside = beside.map(|work| tokio::spawn(work).abort_handle());
        let (mut engine, handle) = Engine::new(config);
        change(&mut engine);
        let engine = tokio::spawn(engine.run());
        clock.start();
        Running {
            engine,
            beside,
            handle,
        }
    }
}

/// A running host.
pub struct Running {
    engine: JoinHandle<()>,
    beside: Option<AbortHandle>,
    handle: Handle,
}

/// The stage of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Passes in flight are being finished.
    Finishing,
    /// Passes in flight are cut. Requests that were sent may still take effect; then the lease is given up.
    Cutting,
}

impl Running {
    /// A handle to the host.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits for the end of a host that nobody told to stop. It then does nothing any more, so the caller
    /// must end, too, and not go on as if the host ran.
    pub async fn ended_by_itself(&mut self) -> anyhow::Error {
        let why = match (&mut self.engine).await {
            Ok(()) => "all its inputs are closed".to_owned(),
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => format!("it panicked: {}", said(&*panic)),
                Err(ended) => ended.to_string(),
            },
        };
        anyhow!("the event loop of the host ended before it was told to; this is a bug of Polity: {why}")
    }

    /// Ends the host. Passes in flight are finished as long as `patience` lasts for that stage, and then cut.
    /// `true` if the host ended and gave up its lease; `false` if `patience` for the second stage ran out,
    /// too.
    ///
    /// # Errors
    /// The host failed while it stopped.
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
}

/// For tests, which crash hosts and look at their ends.
#[cfg(feature = "simulation")]
impl Running {
    /// Waits for the end of a host that was told to stop.
    ///
    /// # Errors
    /// The host failed while it stopped.
    pub async fn stopped(mut self) -> Result<()> {
        let ended = (&mut self.engine).await;
        ended.context("the event loop of the host failed while it stopped")
    }

    /// Whether the host has ended.
    pub fn is_finished(&self) -> bool {
        self.engine.is_finished()
    }

    /// Ends the host at once, as a crash does.
    pub fn abort(&self) {
        self.engine.abort();
    }

    /// A handle that ends the host at once.
    pub fn abort_handle(&self) -> AbortHandle {
        self.engine.abort_handle()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.beside.iter().for_each(AbortHandle::abort);
    }
}

/// The message of a panic.
fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
