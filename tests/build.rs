//! Compiles the shipped and the misbehaving policies, and the drivers, to WebAssembly. They have a target folder of their own,
//! because the cargo that runs this script has locked the shared one; it lies beside the folders of the build scripts, so that
//! tests and lints, whose scripts are two, share it.

use std::path::{Path, PathBuf};
use std::process::Command;

const GUESTS: [&str; 24] = [
    "capv-machine",
    "capa-identity",
    "mcm-machine",
    "mcm-machineclass",
    "mcm-machineset",
    "mcm-identity",
    "mcm-safety",
    "orbiter",
    "orbiter-node-agent",
    "rug-router",
    "mcm-retry",
    "backoff-retry",
    "polity-driver-aws",
    "polity-driver-vsphere",
    "polity-driver-openstack",
    "hostile",
    "hostile-driver",
    "hostile-identity",
    "hostile-manifest",
    "hostile-retry",
    "hostile-schema",
    "hostile-verbatim-lifecycle",
    "hostile-verbatim-identity",
    "hostile-verbatim-retry",
];

/// As a host builds the crate of a policy: `tests/story.rs` compares what it makes of it.
const FLAGS: &str = "target.wasm32-unknown-unknown.rustflags=['-Copt-level=3', '-Ccodegen-units=1', '-Cpanic=abort', \
    '-Cdebug-assertions=off', '-Coverflow-checks=off', '-Cdebuginfo=0', '-Cstrip=debuginfo']";

fn main() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests lies in the workspace");
    // `target/debug/guests`, beside `target/debug/build/polity-tests-…/out`.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    let target = out
        .ancestors()
        .nth(3)
        .expect("a folder of the profile")
        .join("guests");
    for source in [
        "policies",
        "host/drivers",
        "tests/hostile",
        "wit",
        "Cargo.lock",
        "Cargo.toml",
    ] {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(workspace)
        .args(["build", "--target", "wasm32-unknown-unknown", "--config", FLAGS]);
    cargo.arg("--target-dir").arg(&target);
    for policy in GUESTS {
        cargo.args(["--package", policy]);
    }
    // The variables of the outer cargo must not reach the inner one, nor another compiler with which the
    // outer one runs.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let cargos = text.starts_with("CARGO") && !["CARGO_HOME", "CARGO_NET_OFFLINE"].contains(&&*text);
        let compilers = text.starts_with("RUSTC") || ["RUSTFLAGS", "RUSTUP_TOOLCHAIN"].contains(&&*text);
        if cargos || compilers || text == "TARGET" {
            cargo.env_remove(&name);
        }
    }
    cargo.env("CARGO_INCREMENTAL", "0");
    let status = cargo.status().expect("cargo runs");
    assert!(
        status.success(),
        "the policies do not compile to wasm32-unknown-unknown: {status}"
    );
    let folder = target.join("wasm32-unknown-unknown/debug");
    println!("cargo::rustc-env=GUESTS={}", folder.display());
    println!("cargo::rustc-env=GUEST_FLAGS={FLAGS}");
    for policy in GUESTS {
        let file = policy.replace('-', "_");
        let path = folder.join(format!("{file}.wasm"));
        println!(
            "cargo::rustc-env=GUEST_{}={}",
            file.to_uppercase(),
            path.display()
        );
    }
}
