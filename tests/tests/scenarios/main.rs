//! The scenarios of the specifications, (g) of each, and what is known beside them, as acceptance tests: the whole host
//! with the compiled policies and the simulated cloud.
//!
//! Each is a function of a backend and a test of its own, on the embedded API in the time of a paused runtime. Those that
//! take seconds in real time, and count nothing that a slow machine would change, are told on a real API server too: one
//! for all of them. All of them together, recorded, must take every edge of their specification.

mod capa;
mod capv;
mod edges;
mod mcm;
mod orbiter;
mod rug;

use std::path::Path;

use polity_tests::host_harness::backend::{Backend, Embedded, RealServer};
use polity_tests::kubernetes::{Assets, KubeServer};

/// Tells a scenario on a runtime whose time is its own.
fn on_a_paused_runtime(scenario: impl AsyncFnOnce(&dyn Backend), recordings: Option<&Path>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(scenario(&Embedded { recordings }));
}

/// Tells a scenario in real time, on a runtime whose hosts end with it.
fn on_a_real_server(name: &str, scenario: impl AsyncFnOnce(&dyn Backend), server: &RealServer) {
    // A panic from here on is that of this one.
    eprintln!("on a real API server: {name}");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(scenario(server));
    runtime.shutdown_background();
}

/// Makes a test of each scenario, and `record_all`, which tells them one after the other and records them. Those after
/// `short` are told on a real API server, too.
macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        $(
            mod $name {
                #[test]
                fn through_the_host() {
                    crate::on_a_paused_runtime(super::$name, None);
                }
            }
        )*

        /// Runs every scenario and records its passes.
        pub(crate) fn record_all(folder: &std::path::Path) {
            $(crate::on_a_paused_runtime($name, Some(&folder.join(stringify!($name))));)*
        }
    };
    ($($name:ident),* $(,)?; short: $($short:ident),+ $(,)?) => {
        crate::scenarios! { $($name,)* $($short,)+ }

        /// Tells the short ones in real time.
        pub(crate) fn in_real_time(server: &polity_tests::host_harness::backend::RealServer) {
            $(crate::on_a_real_server(stringify!($short), $short, server);)+
        }
    };
}
pub(crate) use scenarios;

#[test]
fn the_short_ones_hold_on_a_real_api_server() {
    let assets = match Assets::find_with_controllers() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let server = KubeServer::start(&assets, tempfile::tempdir().expect("a folder"));
    let server = RealServer::new(server);
    capv::in_real_time(&server);
    capa::in_real_time(&server);
    rug::letters::in_real_time(&server);
}
