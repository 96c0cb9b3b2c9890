//! `polity policy build`: the files of a policy as a deployment takes them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use polity::packed::packed;
use polity_tests::guests;
use serde_json::Value;

use crate::page::{command, repository, succeeds};

/// What every policy and driver of this repository takes at most in a ConfigMap, which has room for 1,048,576 bytes. The
/// largest, orbiter, takes 430,000.
const LARGEST: usize = 450_000;

/// `polity` in the root of the repository. The build script of these tests has built the same crates in the same way.
fn polity(arguments: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_polity-under-test"), repository());
    command.args(arguments);
    command
}

fn built(krate: &str, out: &Path) -> Value {
    let build = ["-o", "json", "policy", "build", krate, "--out"];
    let mut command = polity(&build);
    command.arg(out).stderr(std::process::Stdio::null());
    let said = succeeds(command);
    serde_json::from_str(&said).expect("JSON")
}

#[test]
fn a_crate_becomes_two_files_and_the_packed_one_is_the_same_policy() {
    let place = tempfile::tempdir().expect("a folder");
    let at = |name: &str| place.path().join(name);
    let said = built("policies/capv-machine", &at("once"));
    assert_eq!(
        built("policies/capv-machine", &at("twice"))["sha256"],
        said["sha256"]
    );
    let read = |name: &str| fs::read(at(name)).expect("written");
    let (wasm, gz) = (read("once/capv-machine.wasm"), read("once/capv-machine.wasm.gz"));
    assert!(wasm == guests::capv_machine() && gz == packed(&wasm).expect("packed"));
    assert!(
        gz == read("twice/capv-machine.wasm.gz"),
        "the same source makes the same file"
    );
    assert_eq!(said["bytes"], wasm.len());
    assert_eq!(said["gzipBytes"], gz.len());
    assert_eq!(
        said["imports"],
        serde_json::json!(["polity:policy/diagnostics@0.2.0"])
    );

    // What reads a policy, reads the packed one.
    let file = at("once/capv-machine.wasm.gz");
    let file = file.to_str().expect("text");
    let inspected: Value =
        serde_json::from_str(&succeeds(polity(&["-o", "json", "policy", "inspect", file]))).expect("JSON");
    assert_eq!(inspected["sha256"], said["sha256"]);
    assert_eq!(inspected["manifest"], said["manifest"]);
    let definitions = succeeds(polity(&["crds", file]));
    assert!(definitions.contains("machines.capv.polity.dev"), "{definitions}");
}

#[test]
fn no_link_in_the_folder_leads_what_is_written_elsewhere() {
    let (place, elsewhere) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let names = ["capv-machine.wasm", "capv-machine.wasm.gz"];
    let links = names
        .iter()
        .flat_map(|name| [(*name).to_owned(), format!("{name}.new")]);
    let links: Vec<String> = links.collect();
    for link in &links {
        fs::write(elsewhere.path().join(link), "precious").expect("written");
        symlink(elsewhere.path().join(link), place.path().join(link)).expect("linked");
    }
    built("policies/capv-machine", place.path());
    for link in &links {
        let victim = fs::read_to_string(elsewhere.path().join(link)).expect("read");
        assert_eq!(victim, "precious", "{link}");
    }
    for name in names {
        let file = fs::symlink_metadata(place.path().join(name)).expect("written");
        assert!(file.is_file(), "{name} is still a link");
        // As any new file: a host of another user reads it.
        let other = place.path().join("other");
        fs::write(&other, "").expect("written");
        let mode = |file: fs::Metadata| file.permissions().mode();
        assert_eq!(mode(file), mode(fs::metadata(other).expect("written")));
    }
}

#[test]
fn the_crate_of_a_driver_is_built_too() {
    let place = tempfile::tempdir().expect("a folder");
    let out = place.path().to_str().expect("text");
    let said = succeeds(polity(&["policy", "build", "host/drivers/vsphere", "--out", out]));
    assert!(place.path().join("polity-driver-vsphere.wasm.gz").is_file());
    for part in [
        "driver        vsphere ",
        "implements    vm@1 vm.",
        "endpoints     sdk\n",
        "sha256        ",
    ] {
        assert!(said.contains(part), "{part:?} is missing: {said}");
    }
}

#[test]
fn what_is_no_crate_of_a_policy_is_said() {
    let place = tempfile::tempdir().expect("a folder");
    let empty = place.path().to_str().expect("text");
    for (krate, wanted) in [
        (empty, "the folder has no Cargo.toml"),
        (
            "README.md",
            "is not a folder; expected the folder of a policy crate",
        ),
        ("policies/mcm-api", "builds no wasm file: add crate-type"),
    ] {
        let refused = polity(&["policy", "build", krate, "--out", empty])
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(wanted), "{wanted:?} is missing: {said}");
    }
    assert_eq!(fs::read_dir(place.path()).expect("a folder").count(), 0);
}

#[test]
fn every_policy_and_driver_fits_in_a_config_map_when_it_is_packed() {
    let mut sizes = Vec::new();
    for file in fs::read_dir(guests::folder()).expect("a folder") {
        let path = file.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.extension().is_some_and(|ending| ending == "wasm") && !name.starts_with("hostile") {
            let wasm = fs::read(&path).expect("read");
            sizes.push((packed(&wasm).expect("packed").len(), name));
        }
    }
    sizes.sort();
    assert!(sizes.len() >= 13, "{sizes:?}");
    let (largest, _) = sizes.last().expect("one");
    assert!(*largest <= LARGEST, "{sizes:#?}");
}
