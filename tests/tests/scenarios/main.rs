//! The scenarios of the specifications, (g) of each, as acceptance tests: the whole host with the compiled policy,
//! the embedded API and the simulated cloud, in the time of a paused runtime.
//!
//! Each is a test of its own. All of them together, recorded, must take every edge of their specification.

mod capa;
mod capv;
mod edges;
mod mcm;
mod orbiter;
mod rug;

use std::path::Path;

/// Runs a scenario on a runtime whose time is its own.
fn on_a_paused_runtime(scenario: impl AsyncFnOnce(Option<&Path>), recording: Option<&Path>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(scenario(recording));
}

/// Makes a test of each scenario, and `all`, which runs them one after the other and records them.
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
}
pub(crate) use scenarios;
