//! Acceptance tests: scenarios with the whole host, the compiled policies and the simulated cloud.
//!
//! Each policy was written from a specification, which is not part of this repository. Its section (g) numbers the
//! scenarios, and these files keep the numbers. Section (i) has additions to them, (f) the errata of the original drawing.
//!
//! A scenario is a function of a backend and a test of its own, on the embedded API in the time of a paused runtime. Some
//! take only seconds in real time, and count nothing that a slow machine would change: these run on a real API server, too,
//! one for all of them. All scenarios together, recorded, take every edge of their specification, except the nine that
//! nothing outside of a host can bring about (`edges.rs` lists them; the cases take them).

pub(crate) mod capa;
pub(crate) mod capv;
mod edges;
pub(crate) mod mcm;
pub(crate) mod orbiter;
pub(crate) mod rug;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

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

/// Where the recordings of a scenario are that was told to its end; nothing if it failed.
pub(crate) type Told = OnceLock<Option<PathBuf>>;

/// Tells a scenario, recorded, unless this process has done so: its own test and the test of the edges share it.
pub(crate) fn tell_once(told: &Told, name: &str, scenario: impl AsyncFnOnce(&dyn Backend)) -> PathBuf {
    let recordings = told.get_or_init(|| {
        let folder = recordings().join(name.replace("::", "/"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let to_its_end = AssertUnwindSafe(|| on_a_paused_runtime(scenario, Some(&folder)));
        catch_unwind(to_its_end).is_ok().then_some(folder)
    });
    let recordings = recordings.clone();
    recordings.unwrap_or_else(|| panic!("{name} fails; the test that told it says how"))
}

/// The folder of this run's recordings; those of the run before are gone.
fn recordings() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scenarios");
        if folder.exists() {
            std::fs::remove_dir_all(&folder).expect("the one before goes");
        }
        folder
    })
}

/// Makes a test of each scenario, and `recordings`, which says where each was recorded. Those after `short` are told on a
/// real API server, too.
macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        $(
            mod $name {
                pub(super) fn told() -> std::path::PathBuf {
                    static TOLD: crate::scenarios::Told = crate::scenarios::Told::new();
                    crate::scenarios::tell_once(&TOLD, module_path!(), super::$name)
                }

                #[test]
                fn through_the_host() {
                    told();
                }
            }
        )*

        /// The recordings of every scenario.
        pub(crate) fn recordings() -> Vec<std::path::PathBuf> {
            vec![$($name::told()),*]
        }
    };
    ($($name:ident),* $(,)?; short: $($short:ident),+ $(,)?) => {
        crate::scenarios::scenarios! { $($name,)* $($short,)+ }

        /// Tells the short ones in real time.
        pub(crate) fn in_real_time(server: &polity_tests::host_harness::backend::RealServer) {
            $(crate::scenarios::on_a_real_server(stringify!($short), $short, server);)+
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
    mcm::creation::in_real_time(&server);
    mcm::deletion::in_real_time(&server);
    orbiter::refusals::in_real_time(&server);
}
